package plugin

import (
	"context"
	"fmt"
	"sync"
)

// Locks let one worker at a time work on what has a name. Unlike a mutex they can be waited for with a deadline:
// whoever has one may hang in the kernel.
type Locks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the lock is given back
}

// Take waits for the lock and answers with the function that gives it back.
func (l *Locks) Take(ctx context.Context, name string) (func(), error) {
	for {
		l.mu.Lock()
		busy := l.held[name]
		if busy == nil {
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			l.held[name] = mine
			l.mu.Unlock()
			return func() { l.giveBack(name, mine) }, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("another pod's work on %s goes on: %w", name, context.Cause(ctx))
		}
	}
}

func (l *Locks) giveBack(name string, mine chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, name)
	close(mine)
}
