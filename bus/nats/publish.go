package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/layout"
)

// replaceTimeout is how long the bus may take for a replacement where the writer sets no limit.
const replaceTimeout = 5 * time.Second

// pubAck is JetStream's answer to a stored message.
type pubAck struct {
	Error *apiError `json:"error"`
}

// Publish implements bus.Transport. While the bus is away it waits for it until ctx ends.
func (t *Transport) Publish(ctx context.Context, m bus.Message) error {
	if err := t.publish(ctx, m); err != nil {
		return fmt.Errorf("publish %s: %w", m.Subject, err)
	}
	return nil
}

func (t *Transport) publish(ctx context.Context, m bus.Message) error {
	s, err := t.await(ctx, nil)
	if err != nil {
		return err
	}
	err = s.publish(ctx, encode(m))
	if refused, ok := errors.AsType[*apiError](err); ok && refused.full() {
		// The bus has a reserve for the keys that it has already. One of a release that has none refuses this too.
		if s.publish(ctx, replacement(ctx, m)) == nil {
			return nil
		}
	}
	return err
}

// replacement has the bus store m, whose key it has, though its store is full, while the writer waits for the answer.
func replacement(ctx context.Context, m bus.Message) *natsgo.Msg {
	out := encode(m)
	out.Subject = layout.ReplacePrefix + m.Subject
	if out.Header == nil {
		out.Header = natsgo.Header{}
	}
	by, ok := ctx.Deadline()
	if !ok {
		by = time.Now().Add(replaceTimeout)
	}
	out.Header[layout.ReplaceBy] = []string{strconv.FormatInt(by.UnixMilli(), 10)}
	return out
}

// publish has the bus store a message, and fails with an *apiError if it refuses.
func (s *session) publish(ctx context.Context, m *natsgo.Msg) error {
	reply, err := s.request(ctx, m)
	if errors.Is(err, bus.ErrNoResponder) {
		return errors.New("the bus keeps no stream for this subject: is kubelot-bus of another version?")
	}
	if err != nil {
		return err
	}
	var ack pubAck
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return fmt.Errorf("decode the bus's acknowledgement: %w", err)
	}
	switch {
	case ack.Error == nil:
		return nil
	case ack.Error.ErrCode == errMessageSize:
		return fmt.Errorf("%w: %s has %d bytes", bus.ErrTooLarge, m.Subject, len(m.Data))
	default:
		return ack.Error
	}
}

// Request implements bus.Transport.
func (t *Transport) Request(ctx context.Context, m bus.Message) (bus.Message, error) {
	s, _ := t.current()
	if s == nil {
		return bus.Message{}, bus.ErrDisconnected
	}
	reply, err := s.call(ctx, t.options.Daemon, encode(m))
	if err != nil {
		return bus.Message{}, err
	}
	return decode(reply, time.Time{}), nil
}

// Serve implements bus.Transport.
func (t *Transport) Serve(ctx context.Context, subject string,
	handle func(context.Context, bus.Message) bus.Message,
) error {
	failure := make(chan error, 1)
	t.spawn(ctx, func(ctx context.Context) { failure <- t.serve(ctx, subject, handle) })
	return <-failure
}

func (t *Transport) serve(ctx context.Context, subject string,
	handle func(context.Context, bus.Message) bus.Message,
) error {
	srv := &server{t: t, requests: make(chan *natsgo.Msg), handle: handle}
	defer srv.answers.Wait()
	var s *session
	for {
		var err error
		if s, err = t.await(ctx, s); err != nil {
			return nil // ctx or the transport has ended, as it should some day
		}
		if err := srv.session(ctx, s, subject); err != nil {
			return fmt.Errorf("serve %s: %w", subject, err)
		}
	}
}
