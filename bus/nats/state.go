package nats

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/latest"
)

// WatchState implements bus.Transport.
func (t *Transport) WatchState(ctx context.Context, filters []string) <-chan bus.Delivery {
	out := make(chan bus.Delivery)
	t.spawn(ctx, func(ctx context.Context) {
		defer close(out)
		w := &stateWatch{filters: filters, queue: latest.New(), seen: map[string]uint64{}}
		var attached sync.WaitGroup
		defer attached.Wait()
		attached.Go(func() { t.attach(ctx, strings.Join(filters, " "), w.session) })
		w.queue.Drain(ctx, out)
	})
	return out
}

// stateWatch is one state reader over all its sessions.
type stateWatch struct {
	filters []string
	queue   *latest.Queue

	mu sync.Mutex
	id string // the stores that seen speaks of
	// seen is the newest sequence that was queued of each subject; removed subjects aren't in it.
	seen map[string]uint64
	// retained are the subjects met since the session began; nil once it is caught up.
	retained map[string]bool
	behind   int // parts that are not caught up
}

// part is one filter in one stream.
type part struct {
	stream
	filter string
}

// session reads until the session ends.
func (w *stateWatch) session(ctx context.Context, s *session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts []part
	for _, filter := range w.filters {
		streams, err := s.streamsOf(ctx, filter, streamState, streamOwn)
		if err != nil {
			return err
		}
		for _, st := range streams {
			parts = append(parts, part{st, filter})
		}
	}
	w.begin(parts)
	for _, p := range parts {
		if err := w.filter(ctx, s, p, cancel); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// begin prepares for the retained messages of all parts.
func (w *stateWatch) begin(parts []part) {
	id := ""
	for _, p := range parts {
		id += p.id + " "
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.id != id {
		// Another store: its sequences say nothing about the old one's, and what it doesn't have
		// (yet) is not gone, since writers send everything again.
		w.seen, w.id = map[string]uint64{}, id
	}
	w.retained, w.behind = map[string]bool{}, len(parts)
}

// filter starts the reader of one filter.
func (w *stateWatch) filter(ctx context.Context, s *session, p part, fail context.CancelCauseFunc) error {
	config := natsgo.ConsumerConfig{FilterSubject: p.filter, DeliverPolicy: natsgo.DeliverLastPerSubjectPolicy}
	caughtUp := sync.OnceFunc(func() { w.caughtUp(ctx) })
	info, err := s.consume(ctx, p.stream, config, func(a arrival) {
		w.put(ctx, a)
		if behind := time.Since(a.Time); a.seq > p.last && behind > tooFarBehind {
			fail(fmt.Errorf("this reader is %v behind and begins again with what is retained", behind.Round(time.Second)))
		}
		if a.pending == 0 {
			caughtUp()
		}
	}, fail)
	if err != nil {
		return err
	}
	if info.empty() {
		caughtUp()
	}
	return nil
}

// put takes a message of the session to which ctx belongs; one that comes after that session's end
// is left to the next.
func (w *stateWatch) put(ctx context.Context, a arrival) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if w.retained != nil {
		w.retained[a.Subject] = true
	}
	if a.seq <= w.seen[a.Subject] {
		return
	}
	w.queue.Put(a.Message)
	if a.Tombstone() {
		delete(w.seen, a.Subject)
		return
	}
	w.seen[a.Subject] = a.seq
}

// caughtUp counts the parts that have delivered what was retained; after the last of them the reader is synced.
func (w *stateWatch) caughtUp(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.behind--
	if w.behind != 0 || ctx.Err() != nil {
		return
	}
	for subject := range w.seen {
		if !w.retained[subject] {
			// The key was removed while this reader was away, and so long ago that its tombstone is gone too.
			delete(w.seen, subject)
			w.queue.Put(bus.Message{Subject: subject, Header: map[string]string{bus.HeaderTombstone: "1"}})
		}
	}
	w.retained = nil
	w.queue.PutSynced()
}
