// Package ttlcache keeps readings for a short while, so that callers that come at once share one.
//
// # Guarantees
//
//   - At most one reading of a cell is under way; all who ask meanwhile wait for it.
//   - A caller waits no longer than its context; the reading goes on until its own deadline and serves the next caller.
//     One that can't be ended, such as a call to a filesystem that hangs, takes one goroutine and holds up nobody but
//     its cell.
//   - A cell with a Rest isn't read again until ten times as long has passed as the last attempt took, however it
//     ended, unless its caller is in a hurry.
//   - A reading that fails leaves the last good one, which is handed out with the error.
package ttlcache

import (
	"context"
	"sync"
	"time"
)

// Group waits for the readings of its cells.
type Group struct {
	ctx context.Context
	wg  sync.WaitGroup
}

// NewGroup makes a group whose readings end with ctx.
func NewGroup(ctx context.Context) *Group { return &Group{ctx: ctx} }

// Wait waits for readings under way, but no longer than patience: one that hangs in the kernel ends with the process.
func (g *Group) Wait(patience time.Duration) {
	done := make(chan struct{})
	go func() {
		g.wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// Cell is one thing that is read. The zero value is an empty one.
type Cell[T any] struct {
	// Rest bounds how long a reading that takes long, or failed, isn't begun again; zero is no rest.
	Rest time.Duration

	mu   sync.Mutex
	last Reading[T]
	// ended is when the last attempt did, and took how long it was.
	ended time.Time
	took  time.Duration
	// busy is closed when the reading under way ends; nil when there is none.
	busy chan struct{}
}

// Reading is what was read and when the reading began; At is zero where nothing was ever read.
type Reading[T any] struct {
	Value T
	At    time.Time
	// Err is why the last attempt failed; Value is then what was read before.
	Err error
}

// Get returns a reading that is at most maxAge old, made by read within timeout. Where ctx ends first it is the last
// one, with the context's cause as its error.
func (c *Cell[T]) Get(ctx context.Context, g *Group, maxAge, timeout time.Duration,
	read func(context.Context) (T, error),
) Reading[T] {
	asked := time.Now()
	for {
		c.mu.Lock()
		last, resting := c.last, !c.ended.IsZero() && time.Since(c.ended) < min(max(maxAge, 10*c.took), c.Rest)
		if !last.At.IsZero() && asked.Sub(last.At) <= maxAge || c.busy == nil && resting {
			c.mu.Unlock()
			return last
		}
		if c.busy == nil {
			c.begin(g, timeout, read) //nolint:contextcheck // the reading outlives its caller
		}
		busy := c.busy
		c.mu.Unlock()
		select {
		case <-busy:
			// The reading may have begun before this caller asked; with a maxAge of zero it takes the next one only if it did.
			c.mu.Lock()
			last := c.last
			c.mu.Unlock()
			if last.Err != nil || asked.Sub(last.At) <= maxAge {
				return last
			}
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			last := c.last
			last.Err = context.Cause(ctx)
			return last
		}
	}
}

// begin starts a reading. The caller holds the lock.
func (c *Cell[T]) begin(g *Group, timeout time.Duration, read func(context.Context) (T, error)) {
	busy := make(chan struct{})
	c.busy = busy
	at := time.Now()
	g.wg.Go(func() {
		ctx, cancel := context.WithTimeout(g.ctx, timeout)
		defer cancel()
		value, err := read(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			c.last = Reading[T]{Value: value, At: at}
		} else {
			c.last.Err = err
		}
		c.ended, c.took = time.Now(), time.Since(at)
		c.busy = nil
		close(busy)
	})
}

// Hurry ends the rest, once as much time has passed as the last attempt took.
func (c *Cell[T]) Hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.ended) >= c.took {
		c.ended = time.Time{}
	}
}

// Peek is the last reading, however old.
func (c *Cell[T]) Peek() Reading[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}
