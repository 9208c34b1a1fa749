package bustest

import (
	"context"
	"slices"
	"sync"

	"kubelot.dev/bus"
)

// eventReader is one WatchEvents.
type eventReader struct {
	t       *transport
	filters []string
	wake    chan struct{}
	store   int // the store that next speaks of
	next    int // sequence of the next message to look at

	kept   int  // sequence of the last message that was there when the reader came
	marked bool // the Synced mark was sent

	mu          sync.Mutex
	position    string // where the bus keeps the position; empty unless durable
	outstanding []int  // delivered, not all acknowledged
	acked       map[int]bool
}

// WatchEvents implements bus.Transport.
func (t *transport) WatchEvents(ctx context.Context, filters []string, from bus.From) <-chan bus.Delivery {
	out := make(chan bus.Delivery)
	r := &eventReader{t: t, filters: filters, wake: make(chan struct{}, 1), acked: map[int]bool{}}
	if from.Durable != "" {
		r.position = t.daemon + " " + from.Durable
	}
	t.bus.mu.Lock()
	up := t.bus.up && !t.stranger
	if up {
		r.beginLocked(from) // what is published from now on is new to the reader
	}
	t.bus.mu.Unlock()
	t.spawn(ctx, func(ctx context.Context) {
		defer close(out)
		if t.await(ctx) != nil {
			return
		}
		allowed := t.bus.mayLocked(t.daemon, reading, filters...)
		if !up {
			r.beginLocked(from)
		}
		t.bus.events[r] = true
		t.bus.mu.Unlock()
		if !allowed {
			_ = t.refuse("reading", filters)
			<-ctx.Done()
		}
		r.run(ctx, out)
		t.bus.mu.Lock()
		delete(t.bus.events, r)
		t.bus.mu.Unlock()
	})
	return out
}

// beginLocked decides where the reader begins.
func (r *eventReader) beginLocked(from bus.From) {
	b := r.t.bus
	r.store, r.kept = b.store, len(b.log)
	done := b.positions[r.position]
	switch {
	case from.Durable != "" && done > 0:
		r.next = done + 1
	case !from.Since.IsZero():
		r.next = 1 + slices.IndexFunc(b.log, func(m bus.Message) bool { return !m.Time.Before(from.Since) })
		if r.next == 0 {
			r.next = len(b.log) + 1
		}
	case from.Durable != "":
		r.next = 1
	default:
		r.next = len(b.log) + 1
	}
}

func (r *eventReader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *eventReader) run(ctx context.Context, out chan<- bus.Delivery) {
	for ctx.Err() == nil {
		d, ok := r.take()
		if !ok {
			select {
			case <-r.wake:
			case <-ctx.Done():
			}
			continue
		}
		select {
		case out <- d:
		case <-ctx.Done():
		}
	}
}

// take is the next message for the reader.
func (r *eventReader) take() (bus.Delivery, bool) {
	b := r.t.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.up {
		return bus.Delivery{}, false
	}
	if r.store != b.store {
		r.store, r.next, r.kept = b.store, 1, 0
		r.mu.Lock()
		r.outstanding = nil
		clear(r.acked)
		r.mu.Unlock()
	}
	for {
		if !r.marked && r.next > r.kept {
			r.marked = true
			return bus.Delivery{Synced: true, Ack: func() {}}, true
		}
		if r.next > len(b.log) {
			return bus.Delivery{}, false
		}
		seq := r.next
		r.next++
		if m := b.log[seq-1]; matchesAny(r.filters, m.Subject) {
			return bus.Delivery{Message: m, Ack: r.acker(b.store, seq)}, true
		}
	}
}

func (r *eventReader) acker(store, seq int) func() {
	if r.position == "" {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outstanding = append(r.outstanding, seq)
	return func() {
		b := r.t.bus
		b.mu.Lock()
		defer b.mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		if store != b.store {
			return
		}
		r.acked[seq] = true
		for len(r.outstanding) > 0 && r.acked[r.outstanding[0]] {
			b.positions[r.position] = r.outstanding[0]
			delete(r.acked, r.outstanding[0])
			r.outstanding = r.outstanding[1:]
		}
	}
}
