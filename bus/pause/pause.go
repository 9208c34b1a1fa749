// Package pause waits between attempts.
//
// # Guarantees
//
//   - A wait ends with its context.
//   - Pauses after failures are those of k8s.io/apimachinery's wait.Backoff, which client-go's watches use too, so that
//     the project has one kind of back-off (docs/adr/0024).
package pause

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// For waits for d or the end of ctx.
func For(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Doubling returns pauses that double from first to last. Each is up to a quarter shorter or longer at random, so that
// many clients don't try at once. Step is the next pause; after a success the caller begins with a new Backoff.
func Doubling(first, last time.Duration) wait.Backoff {
	// wait.Backoff makes pauses longer at random, never shorter.
	return wait.Backoff{Duration: first * 3 / 4, Cap: last * 3 / 4, Factor: 2, Jitter: 2. / 3, Steps: math.MaxInt}
}
