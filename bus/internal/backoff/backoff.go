// Package backoff makes the bus's pauses after failures. They are those of k8s.io/apimachinery's wait.Backoff, which
// client-go's watches use too, so that the project has one kind of back-off (docs/adr/0024).
package backoff

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Doubling returns pauses that double from first to last. Each is up to a quarter shorter or longer at random, so that
// many clients don't try at once. Step is the next pause; after a success the caller begins with a new Backoff.
func Doubling(first, last time.Duration) wait.Backoff {
	// wait.Backoff makes pauses longer at random, never shorter.
	return wait.Backoff{Duration: first * 3 / 4, Cap: last * 3 / 4, Factor: 2, Jitter: 2. / 3, Steps: math.MaxInt}
}
