package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/layout"
	"kubelot.dev/bus/pause"
)

const (
	// heartbeat is how often the bus shows that an idle consumer is alive; a consumer that was silent
	// for three of them is made again.
	heartbeat = 45 * time.Second
	// inactiveAfter is when the bus forgets a consumer whose reader is gone.
	inactiveAfter = 5 * time.Second
	// retryAttach is the pause after a reader could not be set up on a connection that lives.
	retryAttach = time.Second
)

// apiError is JetStream's error.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     uint16 `json:"err_code"`
	Description string `json:"description"`
}

// The ErrCodes that matter here.
const (
	errMessageSize = 10054 // a message is larger than its stream takes
	errNotStored   = 10077 // the stream can't store a message
)

// full reports whether there is no room for a message: in the whole store, or in its stream.
func (e *apiError) full() bool {
	return e.ErrCode == layout.ErrFull || e.ErrCode == errNotStored && e.Description == "maximum bytes exceeded"
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.Code) }

// stream is what a session knows of a stream.
type stream struct {
	name     string
	subjects []string
	// id names this very store: a stream that was lost and made again has another one.
	id string
	// last is the sequence of the newest message when the session asked.
	last uint64
}

// consumerInfo is the part of JetStream's answer to a new consumer that matters here.
type consumerInfo struct {
	Error     *apiError `json:"error"`
	Delivered struct {
		Consumer uint64 `json:"consumer_seq"`
		Stream   uint64 `json:"stream_seq"`
	} `json:"delivered"`
	NumPending uint64 `json:"num_pending"`
}

// empty reports whether the consumer has nothing to deliver at first.
func (i consumerInfo) empty() bool { return i.NumPending == 0 && i.Delivered.Consumer == 0 }

// arrival is one message of a consumer.
type arrival struct {
	bus.Message
	seq uint64
	// pending is the number of messages that the bus still has for the consumer; at 0 it is caught up.
	pending uint64
}

// api asks the bus itself.
func (s *session) api(ctx context.Context, subject string, in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the request %s: %w", subject, err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	reply, err := s.request(ctx, &natsgo.Msg{Subject: subject, Data: data})
	if err != nil {
		return fmt.Errorf("ask the bus for %s: %w", subject, err)
	}
	if err := json.Unmarshal(reply.Data, out); err != nil {
		return fmt.Errorf("decode the bus's answer to %s: %w", subject, err)
	}
	return nil
}

// stream asks for the stream's identity and end.
func (s *session) stream(ctx context.Context, name string) (stream, error) {
	var info struct {
		Error   *apiError `json:"error"`
		Created time.Time `json:"created"`
		Config  struct {
			Subjects []string          `json:"subjects"`
			Metadata map[string]string `json:"metadata"`
		} `json:"config"`
		State struct {
			LastSeq uint64 `json:"last_seq"`
		} `json:"state"`
	}
	if err := s.api(ctx, "$JS.API.STREAM.INFO."+name, struct{}{}, &info); err != nil {
		return stream{}, err
	}
	if info.Error != nil {
		return stream{}, fmt.Errorf("ask the bus for its stream %s: %w", name, info.Error)
	}
	return stream{name, info.Config.Subjects, info.Created.String(), info.State.LastSeq}, nil
}

// streamsOf are the streams that keep what matches the filter.
func (s *session) streamsOf(ctx context.Context, filter string, names ...string) ([]stream, error) {
	var found []stream
	for _, name := range names {
		st, err := s.stream(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, subject := range st.subjects {
			if overlap(filter, subject) {
				found = append(found, st)
				break
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the bus keeps no messages of %s: is kubelot-bus of another version?", filter)
	}
	return found, nil
}

// overlap reports whether a subject can match both patterns.
func overlap(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		switch {
		case x[i] == ">" || y[i] == ">":
			return true
		case x[i] != y[i] && x[i] != "*" && y[i] != "*":
			return false
		}
	}
	return len(x) == len(y)
}

// reader takes what a consumer has. Its functions are called in order and from one goroutine.
type reader struct {
	deliver func(arrival)
	// idle is called when the bus has had nothing for the consumer for a while. What was pending before may have been
	// dropped to make room, and then no message says that it was the last.
	idle func()
	// fail is called once when the consumer has stopped working although the connection lives.
	fail func(error)
}

// consumer is one filter's reader on the bus. It ends with the context of its consume.
type consumer struct {
	reader
	// answer answers a flow control request.
	answer func(subject string)
	last   uint64 // consumer sequence of the last message
	watch  *time.Timer
}

// consume makes a consumer and hands its messages to the reader until ctx ends, the first of them perhaps before it
// returns.
func (s *session) consume(ctx context.Context, st stream, config natsgo.ConsumerConfig, r reader,
) (consumerInfo, error) {
	c := &consumer{reader: r}
	// It fails only on a connection that is gone.
	c.answer = func(subject string) { _ = s.nc.Publish(subject, nil) }
	c.watch = time.AfterFunc(3*heartbeat, func() { r.fail(errors.New("the bus has gone silent for this reader")) })
	sub, err := s.nc.Subscribe(s.nc.NewInbox(), c.receive)
	if err != nil {
		c.watch.Stop()
		return consumerInfo{}, fmt.Errorf("%w: %w", bus.ErrDisconnected, err)
	}
	_ = sub.SetPendingLimits(-1, -1) // flow control bounds what is pending
	context.AfterFunc(ctx, func() {
		c.watch.Stop()
		_ = sub.Unsubscribe() // fails only on a connection that is gone
	})
	config.Name = s.nc.Opts.Name + "-" + nuid.Next()
	config.DeliverSubject = sub.Subject
	config.AckPolicy = natsgo.AckNonePolicy
	config.FlowControl, config.Heartbeat = true, heartbeat
	config.InactiveThreshold = inactiveAfter
	config.MemoryStorage, config.Replicas = true, 1
	request := struct {
		Stream string                `json:"stream_name"`
		Config natsgo.ConsumerConfig `json:"config"`
	}{st.name, config}
	var info consumerInfo
	subject := fmt.Sprintf("$JS.API.CONSUMER.CREATE.%s.%s.%s", st.name, config.Name, config.FilterSubject)
	if err := s.api(ctx, subject, request, &info); err != nil {
		return info, err
	}
	if info.Error != nil {
		return info, fmt.Errorf("read %s: %w", config.FilterSubject, info.Error)
	}
	return info, nil
}

// receive takes one message, heartbeat or flow control request from the bus.
func (c *consumer) receive(m *natsgo.Msg) {
	c.watch.Reset(3 * heartbeat)
	if len(m.Data) == 0 && m.Header.Get("Status") == "100" {
		c.control(m)
		return
	}
	meta, err := m.Metadata()
	if err != nil {
		c.fail(fmt.Errorf("the bus sent a message on %s that isn't from a stream: %w", m.Subject, err))
		return
	}
	if meta.Sequence.Consumer != c.last+1 {
		c.fail(fmt.Errorf("messages between %d and %d of this reader were lost on the way", c.last, meta.Sequence.Consumer))
		return
	}
	c.last = meta.Sequence.Consumer
	c.deliver(arrival{decode(m, meta.Timestamp), meta.Sequence.Stream, meta.NumPending})
}

// control takes a heartbeat, or answers a flow control request so that the bus sends on.
func (c *consumer) control(m *natsgo.Msg) {
	if subject := cmp.Or(m.Reply, m.Header.Get(layout.NATSStalled)); subject != "" {
		c.answer(subject)
		return
	}
	c.idle()
}

// attach runs work once per session until ctx ends. If work fails on a session that lives, it runs again after a pause.
// work's context ends with the session.
func (t *Transport) attach(ctx context.Context, what string, work func(ctx context.Context, s *session) error) {
	var last *session
	for {
		s, err := t.await(ctx, last)
		if err != nil {
			return
		}
		last = s
		for s.ctx.Err() == nil && ctx.Err() == nil {
			err := t.onSession(ctx, s, work)
			if s.ctx.Err() != nil || ctx.Err() != nil {
				break
			}
			t.log.Error("can't read from the bus, retrying", "reading", what, "error", err)
			again := retryAttach
			if errors.Is(err, bus.ErrDenied) {
				again = 30 * retryAttach // only another version of the bus's permissions helps
			}
			live, done := s.attempt(ctx, "")
			pause.For(live, again)
			done()
		}
	}
}

func (t *Transport) onSession(ctx context.Context, s *session, work func(ctx context.Context, s *session) error) error {
	live, done := s.attempt(ctx, "")
	defer done()
	return work(live, s)
}
