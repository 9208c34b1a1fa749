package bustest

import (
	"context"
	"fmt"
	"sync"

	"kubelot.dev/bus"
)

// server is one Serve.
type server struct {
	ctx     context.Context
	handle  func(context.Context, bus.Message) bus.Message
	answers sync.WaitGroup
}

// Serve implements bus.Transport.
func (t *transport) Serve(ctx context.Context, subject string,
	handle func(context.Context, bus.Message) bus.Message,
) error {
	failure := make(chan error, 1)
	t.spawn(ctx, func(ctx context.Context) { failure <- t.serve(ctx, subject, handle) })
	return <-failure
}

func (t *transport) serve(ctx context.Context, subject string,
	handle func(context.Context, bus.Message) bus.Message,
) error {
	if t.await(ctx) != nil {
		return nil //nolint:nilerr // ctx has ended, as it should some day
	}
	b := t.bus
	if !b.mayLocked(t.daemon, serving, subject) {
		b.mu.Unlock()
		return fmt.Errorf("serve %s: %w", subject, t.refuse("serving", subject))
	}
	s := &server{ctx: ctx, handle: handle}
	if b.servers[subject] == nil {
		b.servers[subject] = map[*server]bool{}
	}
	b.servers[subject][s] = true
	b.mu.Unlock()

	<-ctx.Done()
	b.mu.Lock()
	delete(b.servers[subject], s)
	b.mu.Unlock()
	s.answers.Wait()
	return nil
}

// Request implements bus.Transport.
func (t *transport) Request(ctx context.Context, m bus.Message) (bus.Message, error) {
	reply := make(chan bus.Message, 1)
	away, err := t.send(m, reply)
	if err != nil {
		return bus.Message{}, err
	}
	select {
	case r := <-reply:
		return r, nil
	case <-ctx.Done():
		return bus.Message{}, context.Cause(ctx)
	case <-away:
		return bus.Message{}, bus.ErrDisconnected
	case <-t.ctx.Done():
		return bus.Message{}, bus.ErrDisconnected
	}
}

// send hands the request to a server. The channel is closed when the bus goes away.
func (t *transport) send(m bus.Message, reply chan<- bus.Message) (<-chan struct{}, error) {
	b := t.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.up || t.stranger || t.ctx.Err() != nil {
		return nil, bus.ErrDisconnected
	}
	if !b.mayLocked(t.daemon, calling, m.Subject) {
		return nil, t.refuse("calling", m.Subject)
	}
	for s := range b.servers[m.Subject] {
		s.answers.Go(func() { reply <- s.handle(s.ctx, m) })
		return b.changed, nil
	}
	return nil, bus.ErrNoResponder
}
