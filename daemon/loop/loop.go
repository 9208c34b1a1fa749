// Package loop hands work to the goroutine that owns a daemon's state. Other goroutines give it functions that read or
// change the state.
//
// # Guarantees
//
//   - The functions run one after the other, in the goroutine that receives from Changes, and in no other.
//   - A caller waits for the loop at most until its context ends. A function that the loop has taken is run.
//   - What was begun with Go or Follow has ended when Wait returns.
package loop

import (
	"context"
	"sync"

	"kubelot.dev/bus"
)

// Loop belongs to the goroutine that receives from Changes. Its functions may be called from any other.
type Loop struct {
	bus     *bus.Conn
	changes chan func()
	work    sync.WaitGroup
}

// New makes a loop whose Follow reads from the bus. It starts nothing.
func New(conn *bus.Conn) *Loop { return &Loop{bus: conn, changes: make(chan func())} }

// Changes are the functions to run.
func (l *Loop) Changes() <-chan func() { return l.changes }

// Inbox is where Changes come from, for daemon.Pulse.
func (l *Loop) Inbox() chan<- func() { return l.changes }

// Go runs f in a goroutine of its own.
func (l *Loop) Go(f func()) { l.work.Go(f) }

// Wait waits for everything that was begun with Go or Follow.
func (l *Loop) Wait() { l.work.Wait() }

// Do gives f to the loop. It reports whether the loop took it before ctx ended.
func (l *Loop) Do(ctx context.Context, f func()) bool {
	select {
	case l.changes <- f:
		return true
	case <-ctx.Done():
		return false
	}
}

// Ask returns the loop's answer to a question about its state. The error is the cause of ctx's end. In that case the
// loop hasn't taken the question.
func Ask[T any](ctx context.Context, l *Loop, question func() T) (T, error) {
	answer := make(chan T, 1)
	if !l.Do(ctx, func() { answer <- question() }) {
		var none T
		return none, context.Cause(ctx)
	}
	return <-answer, nil
}

// Follow has the loop handle every change of a topic until ctx ends.
func Follow[T any](ctx context.Context, l *Loop, t bus.State[T], handle func(bus.Change[T])) error {
	changes, err := t.Watch(ctx, l.bus)
	if err != nil {
		return err
	}
	l.Go(func() {
		for c := range changes {
			l.Do(ctx, func() { handle(c) })
		}
	})
	return nil
}

// Into keeps a topic's values in a map by their keys, for Follow.
func Into[T any](values map[string]T) func(bus.Change[T]) {
	return func(c bus.Change[T]) {
		switch {
		case c.Synced:
		case c.Deleted:
			delete(values, c.Key)
		default:
			values[c.Key] = c.Value
		}
	}
}
