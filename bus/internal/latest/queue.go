// Package latest is the queue between the bus and a state reader: it keeps the last message of each
// subject, so a reader that is slow misses overwritten values and nothing else, and holds up nobody.
package latest

import (
	"context"
	"sync"

	"kubelot.dev/bus"
)

// Queue is safe for concurrent use. Its size is bounded by the number of subjects.
type Queue struct {
	mu    sync.Mutex
	order []string // subjects in the order of their first unread message; "" is a Synced mark
	last  map[string]bus.Message
	wake  chan struct{}
}

// New is an empty queue.
func New() *Queue {
	return &Queue{wake: make(chan struct{}, 1)}
}

// Put queues m, in place of an unread message of the same subject.
func (q *Queue) Put(m bus.Message) {
	q.mu.Lock()
	if _, queued := q.last[m.Subject]; !queued {
		q.order = append(q.order, m.Subject)
	}
	if q.last == nil {
		q.last = map[string]bus.Message{}
	}
	q.last[m.Subject] = m
	q.mu.Unlock()
	q.signal()
}

// PutSynced queues a Synced mark behind everything queued so far.
func (q *Queue) PutSynced() {
	q.mu.Lock()
	if n := len(q.order); n == 0 || q.order[n-1] != "" {
		q.order = append(q.order, "")
	}
	q.mu.Unlock()
	q.signal()
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Drain hands deliveries to out until ctx ends. One goroutine at a time may call it.
func (q *Queue) Drain(ctx context.Context, out chan<- bus.Delivery) {
	for {
		d, ok := q.pop()
		if !ok {
			select {
			case <-q.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case out <- d:
		case <-ctx.Done():
			return
		}
	}
}

func (q *Queue) pop() (bus.Delivery, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) == 0 {
		q.order, q.last = nil, nil // lets go of what a burst has allocated
		return bus.Delivery{}, false
	}
	subject := q.order[0]
	q.order = q.order[1:]
	d := bus.Delivery{Ack: func() {}}
	if subject == "" {
		d.Synced = true
		return d, true
	}
	d.Message = q.last[subject]
	delete(q.last, subject)
	return d, true
}
