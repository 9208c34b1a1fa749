// Package health judges what a daemon says of itself, and finds the cause.
//
// # Reads
//
// What the daemons say on the bus, and which of them have a process. Nothing else: all functions are pure.
//
// # Guarantees
//
//   - Every finding that is bad has a cause and says what to do.
//   - A message that no rule knows is shown and not guessed at.
package health

import (
	"fmt"
	"time"

	"kubelot.dev/bus/topic"
)

// Problem is what is wrong with a daemon; empty when all is well.
func Problem(h topic.DaemonHealth, now time.Time) string {
	var problem string
	switch {
	case h.State == topic.Stopped:
		problem = "stopped"
	case h.Silent(now):
		problem = fmt.Sprintf("has not reported for %s", now.Sub(h.Beat).Round(time.Second))
	case h.State != topic.Healthy:
		problem = string(h.State)
	default:
		return ""
	}
	if h.Message != "" {
		problem += ": " + h.Message
	}
	return problem
}

// Advice is where to look for the daemon's reasons.
func Advice(daemon string) string { return "see its log: journalctl -u kubelot-" + daemon }
