package nats

import (
	"context"
	"errors"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"kubelot.dev/bus"
)

// server answers the requests of one subject, over any number of sessions.
type server struct {
	t        *Transport
	requests chan *natsgo.Msg
	handle   func(context.Context, bus.Message) bus.Message
	answers  sync.WaitGroup
}

// session serves until ctx or the connection ends. An error says that the bus refuses the subject.
func (srv *server) session(ctx context.Context, s *session, subject string) error {
	live, done := s.attempt(ctx, subject)
	defer done()
	sub, err := s.nc.Subscribe(subject, func(m *natsgo.Msg) {
		select {
		case srv.requests <- m:
		case <-live.Done():
		}
	})
	if err != nil {
		s.end(err)
		return nil
	}
	for {
		select {
		case m := <-srv.requests:
			srv.answers.Go(func() { srv.answer(ctx, m) })
		case <-live.Done():
			_ = sub.Unsubscribe() // fails only on a connection that is gone
			if cause := context.Cause(live); errors.Is(cause, bus.ErrDenied) {
				return cause
			}
			return nil
		}
	}
}

func (srv *server) answer(ctx context.Context, m *natsgo.Msg) {
	reply := srv.handle(ctx, decode(m, time.Time{}))
	if m.Reply == "" {
		return
	}
	err := m.RespondMsg(encode(reply))
	if errors.Is(err, natsgo.ErrMaxPayload) {
		err = m.RespondMsg(encode(bus.Message{Header: map[string]string{
			bus.HeaderError:     bus.ErrTooLarge.Error(),
			bus.HeaderErrorKind: "refused",
		}}))
	}
	if err != nil {
		srv.t.log.Warn("can't send the answer to a call", "subject", m.Subject, "error", err)
	}
}
