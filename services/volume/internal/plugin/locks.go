package plugin

import (
	"context"
	"fmt"
	"path"
	"sync"
	"time"

	"kubelot.dev/bus/topic"
)

// askEvery is how often those who wait for a lock look what its holder is at.
const askEvery = time.Second

// Locks let one worker at a time work on what has a name. Unlike a mutex they can be waited for with a deadline:
// whoever has one may hang in the kernel.
type Locks struct {
	mu   sync.Mutex
	held map[string]lock
}

// lock is what a worker has.
type lock struct {
	ended chan struct{} // closed when it is given back
	work  *work
}

// Take waits for the lock and answers with the function that gives it back. The calls of who has the lock meanwhile are
// told to the waiter; see Watched.
func (l *Locks) Take(ctx context.Context, name string) (func(), error) {
	w := workOf(ctx)
	var call *topic.DriverCall
	for {
		l.mu.Lock()
		busy, held := l.held[name]
		if !held {
			if l.held == nil {
				l.held = map[string]lock{}
			}
			mine := lock{make(chan struct{}), w}
			l.held[name] = mine
			l.mu.Unlock()
			if call != nil {
				w.tell(nil, nil)
			}
			return func() { l.giveBack(name, mine) }, nil
		}
		l.mu.Unlock()
		if now := shownTo(w, busy.work.call.Load()); now != call {
			call = now
			w.tell(call, call)
		}
		select {
		case <-busy.ended:
		case <-time.After(askEvery):
		case <-ctx.Done():
			err := fmt.Errorf("other work on %s goes on: %w", name, context.Cause(ctx))
			if call != nil {
				err = fmt.Errorf("%w: %s", err, Waits(call))
				w.tell(nil, nil)
			}
			return nil, err
		}
	}
}

// shownTo is a call as another pod may hear of it: nothing of those of other namespaces. One that is for no pod has no
// namespace.
func shownTo(w *work, call *topic.DriverCall) *topic.DriverCall {
	if call == nil || call.Pod == "" || path.Dir(call.Pod) == path.Dir(w.pod) {
		return call
	}
	return nil
}

func (l *Locks) giveBack(name string, mine lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, name)
	close(mine.ended)
}
