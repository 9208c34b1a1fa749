package stats

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// pressing is how long walks go first after an eviction has asked for figures; it asks again while it waits.
const pressing = 10 * time.Second

// turns bound how many directories are counted at a time. What an eviction waits for has turns of its own, or the wrong
// pod would go for want of a figure.
type turns struct {
	routine, urgent chan struct{}

	mu sync.Mutex
	// pressed is until when an eviction waits.
	pressed time.Time
}

// newTurns returns n turns, and as many besides for an eviction.
func newTurns(n int) *turns {
	return &turns{routine: make(chan struct{}, n), urgent: make(chan struct{}, n)}
}

// press has what follows go first.
func (t *turns) press() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pressed = time.Now().Add(pressing)
}

// take waits for a turn, for walkTimeout at most. The turn ends with release, which may be called once.
func (t *turns) take(ctx context.Context) (release func(), urgent bool, err error) {
	t.mu.Lock()
	urgent = time.Now().Before(t.pressed)
	t.mu.Unlock()
	from := t.routine
	if urgent {
		from = t.urgent
	}
	ctx, stop := context.WithTimeout(ctx, walkTimeout)
	defer stop()
	select {
	case from <- struct{}{}:
		return func() { <-from }, urgent, nil
	case <-ctx.Done():
		return nil, urgent, fmt.Errorf("wait for its turn to be counted: %w", context.Cause(ctx))
	}
}
