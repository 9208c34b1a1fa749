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
	"kubelot.dev/bus/internal/layout"
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
	behind   int           // parts that are not caught up
	complete chan struct{} // closed when all are
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
		streams, err := s.streamsOf(ctx, filter, layout.StreamState, layout.StreamOwn)
		if err != nil {
			return err
		}
		for _, st := range streams {
			parts = append(parts, part{st, filter})
		}
	}
	complete := w.begin(parts)
	for _, p := range parts {
		if err := w.filter(ctx, s, p, cancel); err != nil {
			return err
		}
	}
	select {
	case <-complete:
		if err := w.settle(ctx, s, parts); err != nil {
			return err
		}
	case <-ctx.Done():
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// begin prepares for the retained messages of all parts. The channel is closed when all were met.
func (w *stateWatch) begin(parts []part) (complete <-chan struct{}) {
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
	w.retained, w.behind, w.complete = map[string]bool{}, len(parts), make(chan struct{})
	return w.complete
}

// filter starts the reader of one filter.
func (w *stateWatch) filter(ctx context.Context, s *session, p part, fail context.CancelCauseFunc) error {
	config := natsgo.ConsumerConfig{FilterSubject: p.filter, DeliverPolicy: natsgo.DeliverLastPerSubjectPolicy}
	caughtUp := sync.OnceFunc(func() { w.caughtUp(ctx) })
	deliver := func(a arrival) {
		w.put(ctx, a)
		if behind := time.Since(a.Time); a.seq > p.last && behind > tooFarBehind {
			fail(fmt.Errorf("this reader is %v behind and starts again from the retained values", behind.Round(time.Second)))
		}
		if a.pending == 0 {
			caughtUp()
		}
	}
	info, err := s.consume(ctx, p.stream, config, reader{deliver, caughtUp, fail})
	if err != nil {
		return err
	}
	if info.empty() {
		caughtUp()
	}
	return nil
}

// put takes a message of the session to which ctx belongs. A message that comes after the end of that session is left
// to the next one.
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

// caughtUp counts the parts of the session to which ctx belongs that have delivered what was retained. A part that
// comes late is none of the next session's.
func (w *stateWatch) caughtUp(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if w.behind--; w.behind == 0 {
		close(w.complete)
	}
}

// settle delivers the keys that were removed while the reader was away, whose tombstones may be gone, and then Synced.
// A key that wasn't among the retained ones isn't always removed: its value may have been replaced while they were
// read. So settle asks the bus.
func (w *stateWatch) settle(ctx context.Context, s *session, parts []part) error {
	var gone []string
	for _, subject := range w.unmet() {
		kept, err := s.has(ctx, parts, subject)
		if err != nil {
			return err
		}
		if !kept {
			gone = append(gone, subject)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, subject := range gone {
		if !w.retained[subject] {
			delete(w.seen, subject)
			w.queue.Put(bus.Message{Subject: subject, Header: map[string]string{bus.HeaderTombstone: "1"}})
		}
	}
	w.retained = nil
	w.queue.PutSynced()
	return nil
}

// unmet are the subjects that the reader knows and that weren't among the retained ones.
func (w *stateWatch) unmet() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var subjects []string
	for subject := range w.seen {
		if !w.retained[subject] {
			subjects = append(subjects, subject)
		}
	}
	return subjects
}

// has reports whether the bus has a message of the subject.
func (s *session) has(ctx context.Context, parts []part, subject string) (bool, error) {
	for _, p := range parts {
		if !overlap(p.filter, subject) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		reply, err := s.request(ctx, &natsgo.Msg{Subject: "$JS.API.DIRECT.GET." + p.name + "." + subject})
		cancel()
		if err != nil {
			return false, fmt.Errorf("ask the bus whether it has %s: %w", subject, err)
		}
		switch status := reply.Header.Get("Status"); status {
		case "404":
		case "":
			return true, nil
		default:
			return false, fmt.Errorf("ask the bus whether it has %s: %s %s", subject, status, reply.Header.Get("Description"))
		}
	}
	return false, nil
}
