package pause

import "time"

const (
	// firstRestart and lastRestart bound the wait before a process or daemon that ended is started again.
	firstRestart = 100 * time.Millisecond
	lastRestart  = 10 * time.Second
	// Steady is how long one must have run for its next pause to be short again.
	Steady = 10 * time.Second
)

// BeforeRestart is the pause before the next start of what ran this long, after the earlier pause.
func BeforeRestart(earlier, ran time.Duration) time.Duration {
	if earlier == 0 || ran >= Steady {
		return firstRestart
	}
	return min(2*earlier, lastRestart)
}
