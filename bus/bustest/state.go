package bustest

import (
	"context"
	"slices"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/latest"
)

// stateReader is one WatchState.
type stateReader struct {
	filters []string
	queue   *latest.Queue
	store   int // the store that seen speaks of
	seen    map[string]int
}

// WatchState implements bus.Transport.
func (t *transport) WatchState(ctx context.Context, filters []string) <-chan bus.Delivery {
	out := make(chan bus.Delivery)
	t.spawn(ctx, func(ctx context.Context) {
		defer close(out)
		if t.await(ctx) != nil {
			return
		}
		if !t.bus.mayLocked(t.daemon, reading, filters...) {
			t.bus.mu.Unlock()
			_ = t.refuse("reading", filters)
			<-ctx.Done()
			return
		}
		r := &stateReader{filters: filters, queue: latest.New()}
		t.bus.states[r] = true
		t.bus.syncLocked(r)
		t.bus.mu.Unlock()
		r.queue.Drain(ctx, out)
		t.bus.mu.Lock()
		delete(t.bus.states, r)
		t.bus.mu.Unlock()
	})
	return out
}

// syncLocked hands the reader what is retained and new to it, in the order in which it was stored.
func (b *Bus) syncLocked(r *stateReader) {
	if r.store != b.store {
		r.store, r.seen = b.store, map[string]int{}
	}
	var retained []int
	for subject, seq := range b.last {
		if matchesAny(r.filters, subject) {
			retained = append(retained, seq)
		}
	}
	slices.Sort(retained)
	for _, seq := range retained {
		b.offerLocked(r, b.log[seq-1], seq)
	}
	r.queue.PutSynced()
}

// offerLocked hands one message to the reader unless it has it already.
func (b *Bus) offerLocked(r *stateReader, m bus.Message, seq int) {
	if r.seen[m.Subject] < seq && matchesAny(r.filters, m.Subject) {
		r.seen[m.Subject] = seq
		r.queue.Put(m)
	}
}
