package bus

import (
	"context"
	"math/rand/v2"
	"time"
)

// A message that the bus refuses is sent again after firstPause, then after pauses that double up to lastPause. Publish itself
// waits for a bus that is away, so this is for failures of another kind, such as a store that is full.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	// refusedPause is between two keys of a writer that are refused one after the other.
	refusedPause = 200 * time.Millisecond
)

// backoff is the pause after the last failure; zero after a success.
type backoff time.Duration

// next is the pause after one more failure, a little at random so that many writers don't try at once.
func (b *backoff) next() time.Duration {
	*b = min(max(2*(*b), backoff(firstPause)), backoff(lastPause))
	pause := time.Duration(*b)
	return pause*3/4 + rand.N(pause/2)
}

// pause waits for d or the context's end.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
