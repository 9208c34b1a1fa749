package pause

import "time"

// After returns the pause after so many failures in a row: first after one failure, then doubling up to last. It is for
// callers that count failures, and it adds nothing at random.
func After(failures int, first, last time.Duration) time.Duration {
	pause := first
	for range failures - 1 {
		if pause = min(2*pause, last); pause == last {
			break
		}
	}
	return min(pause, last)
}
