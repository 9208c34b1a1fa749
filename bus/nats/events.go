package nats

import (
	"context"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/layout"
)

// WatchEvents implements bus.Transport.
func (t *Transport) WatchEvents(ctx context.Context, filters []string, from bus.From) <-chan bus.Delivery {
	out := make(chan bus.Delivery)
	t.spawn(ctx, func(ctx context.Context) {
		defer close(out)
		sources := t.eventSources(ctx, filters, from)
		var attached sync.WaitGroup
		defer attached.Wait()
		for _, src := range sources {
			attached.Go(func() { t.attach(ctx, src.filter, src.session) })
		}
		merge(ctx, sources, out)
		for _, src := range sources {
			src.position.settle(context.WithoutCancel(ctx))
		}
	})
	return out
}

// eventSources finds the streams that keep what the filters name; it waits for the bus.
func (t *Transport) eventSources(ctx context.Context, filters []string, from bus.From) []*eventSource {
	var sources []*eventSource
	ctx, done := context.WithCancel(ctx)
	t.attach(ctx, strings.Join(filters, " "), func(ctx context.Context, s *session) error {
		var found []*eventSource
		for _, filter := range filters {
			streams, err := s.streamsOf(ctx, filter, layout.StreamEvent, layout.StreamState, layout.StreamOwn)
			if err != nil {
				return err
			}
			for _, st := range streams {
				if st.name == layout.StreamState {
					found = append(found, newEventSource(t, layout.StreamHistory, layout.HistoryPrefix+filter, from))
					continue
				}
				found = append(found, newEventSource(t, st.name, filter, from))
			}
		}
		sources = found
		done()
		return nil
	})
	done()
	return sources
}

// eventSource is the reader of one filter in one stream, over all its sessions.
type eventSource struct {
	stream, filter string
	from           bus.From
	out            chan arrival
	position       *position // nil unless durable

	// mu is held while a message is handed over, so that the next session begins behind it.
	mu   sync.Mutex
	id   string // the store that next speaks of; empty before the first session
	next uint64 // sequence behind the last message handed over
}

func newEventSource(t *Transport, stream, filter string, from bus.From) *eventSource {
	src := &eventSource{stream: stream, filter: filter, from: from, out: make(chan arrival)}
	if from.Durable != "" {
		src.position = newPosition(t, from.Durable, filter)
	}
	return src
}

// session reads until the session ends.
func (src *eventSource) session(ctx context.Context, s *session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	st, err := s.stream(ctx, src.stream)
	if err != nil {
		return err
	}
	config, err := src.begin(ctx, s, st)
	if err != nil {
		return err
	}
	idle := func() { src.markIdle(ctx) }
	info, err := s.consume(ctx, st, config, reader{func(a arrival) { src.handOver(ctx, a) }, idle, cancel})
	if err != nil {
		return err
	}
	src.begun(st, info)
	if info.empty() {
		idle()
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// begin decides where in the stream the session begins.
func (src *eventSource) begin(ctx context.Context, s *session, st stream) (natsgo.ConsumerConfig, error) {
	src.mu.Lock()
	defer src.mu.Unlock()
	config := natsgo.ConsumerConfig{FilterSubject: src.filter}
	if src.id == "" {
		err := src.first(ctx, s, st, &config)
		return config, err
	}
	if src.id != st.id || src.next > st.last+1 {
		// Another store, all of which this reader doesn't know yet.
		src.id, src.next = st.id, 1
		src.position.reset()
	}
	src.position.send()
	startAt(&config, src.next)
	return config, nil
}

// first is where a new reader begins.
func (src *eventSource) first(ctx context.Context, s *session, st stream, config *natsgo.ConsumerConfig) error {
	if src.position != nil {
		done, err := src.position.load(ctx, s)
		if err != nil {
			return err
		}
		if done > 0 && done <= st.last {
			startAt(config, done+1)
			return nil
		}
	}
	switch {
	case !src.from.Since.IsZero():
		since := src.from.Since
		config.DeliverPolicy, config.OptStartTime = natsgo.DeliverByStartTimePolicy, &since
	case src.position != nil:
		config.DeliverPolicy = natsgo.DeliverAllPolicy
	default:
		config.DeliverPolicy = natsgo.DeliverNewPolicy
	}
	return nil
}

func startAt(config *natsgo.ConsumerConfig, seq uint64) {
	config.DeliverPolicy, config.OptStartSeq = natsgo.DeliverByStartSequencePolicy, seq
}

// begun remembers where a reader that has got nothing yet stands, so that it misses nothing when the
// connection breaks before its first message.
func (src *eventSource) begun(st stream, info consumerInfo) {
	src.mu.Lock()
	defer src.mu.Unlock()
	src.id = st.id
	if src.next == 0 && info.empty() {
		src.next = info.Delivered.Stream + 1
	}
	if src.next == 0 {
		src.next = 1
	}
}

// handOver gives one message to the reader, unless the session ends before that.
func (src *eventSource) handOver(ctx context.Context, a arrival) {
	src.mu.Lock()
	defer src.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	src.position.deliver(a.seq)
	a.Subject = strings.TrimPrefix(a.Subject, layout.HistoryPrefix)
	select {
	case src.out <- a:
		src.next = a.seq + 1
	case <-ctx.Done():
		src.position.withdraw(a.seq)
	}
}

// markIdle tells the merger that the source has no kept messages.
func (src *eventSource) markIdle(ctx context.Context) {
	select {
	case src.out <- arrival{}:
	case <-ctx.Done():
	}
}
