// Package flight lets callers who ask for the same at the same time share one run.
//
// Reads, writes and owns nothing.
//
// Guarantees: a run ends with the last of those who wait for it, not with the first; nobody joins a run that is over or
// given up.
package flight

import (
	"context"
	"errors"
	"sync"
)

// ErrNobodyWaits ends a run whose result nobody waits for any more.
var ErrNobodyWaits = errors.New("nobody waits for its result any more")

// Group has the runs of one kind. The zero value is ready.
type Group[T any] struct {
	mu  sync.Mutex
	all map[string]*flight[T]
}

// flight is one run. waiters is under the lock of the group; the results are written before done is closed.
type flight[T any] struct {
	cancel  context.CancelCauseFunc
	waiters int
	done    chan struct{}
	result  T
	err     error
}

// Do joins the run of that key, or begins it, and waits for its results. When ctx ends first, Do returns its cause; if
// nobody else waits, it has the run end and waits for that.
func (g *Group[T]) Do(ctx context.Context, key string, run func(context.Context) (T, error)) (T, error) {
	f := g.join(ctx, key, run)
	select {
	case <-f.done:
		g.leave(key, f)
		return f.result, f.err
	case <-ctx.Done():
		if g.leave(key, f) {
			f.cancel(ErrNobodyWaits)
			<-f.done
		}
		var none T
		return none, context.Cause(ctx)
	}
}

func (g *Group[T]) join(ctx context.Context, key string, run func(context.Context) (T, error)) *flight[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.all[key]
	if f == nil {
		f = &flight[T]{done: make(chan struct{})}
		// The run belongs to all who wait: it must not end with the first one's context.
		var running context.Context
		running, f.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		if g.all == nil {
			g.all = map[string]*flight[T]{}
		}
		g.all[key] = f
		go func() {
			defer close(f.done)
			defer f.cancel(nil)
			f.result, f.err = run(running)
			g.mu.Lock()
			defer g.mu.Unlock()
			g.dropLocked(key, f)
		}()
	}
	f.waiters++
	return f
}

// leave reports whether nobody is left.
func (g *Group[T]) leave(key string, f *flight[T]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	f.waiters--
	if f.waiters == 0 {
		g.dropLocked(key, f)
	}
	return f.waiters == 0
}

func (g *Group[T]) dropLocked(key string, f *flight[T]) {
	if g.all[key] == f {
		delete(g.all, key)
	}
}
