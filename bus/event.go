package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"kubelot.dev/bus/pause"
)

// eventQueue is the most events that a publisher holds while the bus is away. Beyond it the oldest is dropped.
const eventQueue = 4096

// Event is a topic with a bounded history.
type Event[T any] struct {
	info
	check *check[T]
}

// NewEvent binds an event topic to its Go type.
func NewEvent[T any](spec Spec) Event[T] {
	return Event[T]{info: info{Spec: spec, kind: KindEvent, payload: reflect.TypeFor[T]()}}
}

// Checked is State.Checked for events.
func (e Event[T]) Checked(sense func(key string, v T) error) Event[T] {
	e.check = &check[T]{sense}
	return e
}

// Occurrence is one event handed to a reader.
type Occurrence[T any] struct {
	Key   string
	Value T
	// At is when the bus stored the event.
	At time.Time
	// Ack tells the bus that a durable reader has handled the event.
	Ack func()
}

// Subscribe delivers events until ctx ends. An event that can't be decoded, or that the topic's check refuses, is
// logged, acknowledged and skipped.
func (e Event[T]) Subscribe(ctx context.Context, c *Conn, from From) <-chan Occurrence[T] {
	raw := c.transport.WatchEvents(ctx, []string{Filter(e)}, from)
	out := make(chan Occurrence[T])
	go func() {
		defer close(out)
		for d := range raw {
			if d.Synced {
				continue
			}
			o, ok := e.decode(d, c)
			if !ok {
				continue
			}
			select {
			case out <- o:
			case <-ctx.Done():
				return
			case <-c.ctx.Done():
				return
			}
		}
	}()
	return out
}

// Read returns all kept events, oldest first, and leaves out what Subscribe skips. It needs the bus.
func (e Event[T]) Read(ctx context.Context, c *Conn) ([]T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var kept []T
	for d := range c.transport.WatchEvents(ctx, []string{Filter(e)}, From{Since: time.Unix(0, 0)}) {
		if d.Synced {
			return kept, nil
		}
		if o, ok := e.decode(d, c); ok {
			kept = append(kept, o.Value)
		}
	}
	return nil, fmt.Errorf("read the history of %s: %w", e.Name(), readFailure(ctx))
}

// decode is false for an event that is skipped.
func (e Event[T]) decode(d Delivery, c *Conn) (Occurrence[T], bool) {
	o := Occurrence[T]{Key: e.keyOf(d.Subject), At: d.Time, Ack: d.Ack}
	err := e.readable(d.Message, c.daemon)
	if err == nil {
		err = decode(d.Data, &o.Value)
	}
	if err == nil {
		err = e.check.of(o.Key, o.Value)
	}
	if c.ignore(e, d.Message, err) {
		d.Ack()
		return o, false
	}
	return o, true
}

// Publisher sends the events of one topic in order. It never waits for the bus; while the bus is
// away it holds up to 4096 events and then drops the oldest with a log line.
type Publisher[T any] struct {
	topic  Event[T]
	conn   *Conn
	header map[string]string // of every message

	mu      sync.Mutex
	queue   []Message
	dropped int
	wake    chan struct{}
	sending bool
	trouble trouble
	backoff wait.Backoff
	idle    chan struct{} // closed and replaced when everything was sent
}

// Publisher starts a publisher of the topic. It ends with the connection.
func (e Event[T]) Publisher(c *Conn) *Publisher[T] {
	p := &Publisher[T]{
		topic: e, conn: c, header: c.header(e), wake: make(chan struct{}, 1), idle: make(chan struct{}),
		backoff: refusal(),
	}
	c.flushes(p.Flush)
	c.background(p.run)
	return p
}

// Publish queues one event.
func (p *Publisher[T]) Publish(key string, v T) error {
	subject, err := p.topic.subject(key)
	if err != nil {
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", p.topic.Name(), key, err)
	}
	p.mu.Lock()
	p.queue = append(p.queue, Message{Subject: subject, Header: p.header, Data: data})
	if len(p.queue) > eventQueue {
		p.queue[0] = Message{}
		p.queue = p.queue[1:]
		p.dropped++
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

func (p *Publisher[T]) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		for ctx.Err() == nil && p.sendOne(ctx) {
		}
	}
}

// sendOne sends the oldest event and reports whether there may be more to send.
func (p *Publisher[T]) sendOne(ctx context.Context) bool {
	m, dropped, ok := p.take()
	if !ok {
		return false
	}
	if dropped > 0 {
		p.conn.log.Warn("dropped events while the bus was unreachable", "topic", p.topic.Name(), "count", dropped)
	}
	publishCtx, cancel := context.WithTimeout(ctx, publishTimeout)
	err := p.conn.transport.Publish(publishCtx, m)
	cancel()
	p.trouble.note(ctx, p.conn.log, m.Subject, err)
	p.settle(m, err)
	if err == nil || lasting(err) {
		p.backoff = refusal()
		return true
	}
	pause.For(ctx, p.backoff.Step())
	return true
}

// take takes the oldest event off the queue.
func (p *Publisher[T]) take() (m Message, dropped int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sending = len(p.queue) > 0
	if !p.sending {
		p.queue = nil // lets go of what a burst has allocated
		close(p.idle)
		p.idle = make(chan struct{})
		return Message{}, 0, false
	}
	m, dropped = p.queue[0], p.dropped
	p.queue[0] = Message{} // the array behind the queue lives on
	p.queue, p.dropped = p.queue[1:], 0
	return m, dropped, true
}

// settle puts a failed event back to the front of the queue, unless it can never be sent.
func (p *Publisher[T]) settle(m Message, err error) {
	switch {
	case err == nil:
	case lasting(err):
		p.conn.log.Error("the bus can never accept this event, dropping it", "subject", m.Subject, "error", err)
	default:
		p.mu.Lock()
		p.queue = append([]Message{m}, p.queue...)
		p.mu.Unlock()
	}
}

// Flush waits until every event published so far was sent or dropped.
func (p *Publisher[T]) Flush(ctx context.Context) error {
	for {
		p.mu.Lock()
		pending, sending, idle := len(p.queue), p.sending, p.idle
		p.mu.Unlock()
		if pending == 0 && !sending {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("%d events of %s are still unsent: %w", pending, p.topic.Name(), context.Cause(ctx))
		}
	}
}

// lasting reports whether the same message would fail again each time.
func lasting(err error) bool { return errors.Is(err, ErrDenied) || errors.Is(err, ErrTooLarge) }
