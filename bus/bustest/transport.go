package bustest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"kubelot.dev/bus"
)

// transport is one daemon's connection.
type transport struct {
	bus    *Bus
	daemon string
	log    *slog.Logger
	// stranger is true for a connection that the bus refuses.
	stranger bool

	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// Close implements bus.Transport.
func (t *transport) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.wg.Wait()
}

// spawn runs work in a goroutine that Close waits for, with a context that ends with both.
func (t *transport) spawn(ctx context.Context, work func(ctx context.Context)) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(bus.ErrDisconnected) })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		cancel(bus.ErrDisconnected)
		go work(ctx)
		return
	}
	t.wg.Go(func() {
		defer cancel(nil)
		defer stop()
		work(ctx)
	})
}

// await waits until the bus is up and then returns nil with the bus locked.
func (t *transport) await(ctx context.Context) error {
	for {
		t.bus.mu.Lock()
		if t.bus.up && !t.stranger && ctx.Err() == nil && t.ctx.Err() == nil {
			return nil
		}
		changed := t.bus.changed
		t.bus.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", bus.ErrDisconnected, context.Cause(ctx))
		case <-t.ctx.Done():
			return fmt.Errorf("%w: the connection of %s was closed", bus.ErrDisconnected, t.daemon)
		}
	}
}

// Publish implements bus.Transport.
func (t *transport) Publish(ctx context.Context, m bus.Message) error {
	if err := t.await(ctx); err != nil {
		return fmt.Errorf("publish %s: %w", m.Subject, err)
	}
	defer t.bus.mu.Unlock()
	if len(m.Data) > bus.MaxPayload {
		return fmt.Errorf("publish %s: %w: it has %d bytes", m.Subject, bus.ErrTooLarge, len(m.Data))
	}
	if !t.bus.mayLocked(t.daemon, publishing, m.Subject) {
		return fmt.Errorf("publish %s: %s to %s: %w", m.Subject, t.daemon, m.Subject, bus.ErrDenied)
	}
	t.bus.storeLocked(m)
	return nil
}

// Connects implements bus.Transport.
func (t *transport) Connects(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	t.spawn(ctx, func(ctx context.Context) {
		defer close(out)
		for t.await(ctx) == nil {
			changed := t.bus.changed
			t.bus.mu.Unlock()
			select {
			case out <- struct{}{}:
			default:
			}
			select {
			case <-changed: // the bus went away
			case <-ctx.Done():
				return
			}
		}
	})
	return out
}

// refuse logs that something isn't in the daemon's contract.
func (t *transport) refuse(what string, subjects any) error {
	err := fmt.Errorf("%s of %v by %s: %w", what, subjects, t.daemon, bus.ErrDenied)
	t.log.Error("the bus refused an operation that this daemon's contract doesn't list", "error", err)
	return err
}
