package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/nats-io/nuid"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/layout"
)

const (
	// connectTimeout bounds one attempt to connect, requestTimeout one question to the bus itself.
	connectTimeout = 2 * time.Second
	requestTimeout = 5 * time.Second
	// pingInterval is how often a silent connection is probed; a broken unix socket shows at once anyway.
	pingInterval = 2 * time.Minute
)

// session is one connection from its making to its end. It is never repaired: the transport makes a new one.
type session struct {
	nc *natsgo.Conn
	// ctx ends with the connection.
	ctx context.Context
	end context.CancelCauseFunc

	mu sync.Mutex
	// refusals are called when the bus refuses a message or a subscription on their subject.
	refusals map[string][]*refusal
}

type refusal struct{ tell context.CancelCauseFunc }

// connect makes one connection and checks the daemon's key with it.
func connect(ctx context.Context, o Options) (*session, error) {
	seed, err := os.ReadFile(o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the bus key of %s: %w", o.Daemon, err)
	}
	pair, err := nkeys.ParseDecoratedUserNKey(seed)
	if err != nil {
		return nil, fmt.Errorf("%w: %s holds no usable key: %w", bus.ErrDenied, o.KeyFile, err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("%w: %s holds no usable key: %w", bus.ErrDenied, o.KeyFile, err)
	}
	s := &session{refusals: map[string][]*refusal{}}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	dialer := &dialer{options: o, ctx: ctx}
	s.nc, err = s.options(o, public, pair, dialer).Connect()
	switch {
	case errors.Is(err, natsgo.ErrAuthorization):
		return nil, fmt.Errorf("%w: the bus doesn't know the key of %s", bus.ErrDenied, o.Daemon)
	case err != nil && dialer.failure != nil:
		return nil, dialer.failure
	case err != nil:
		return nil, fmt.Errorf("connect to the bus: %w", err)
	}
	return s, nil
}

func (s *session) options(o Options, public string, pair nkeys.KeyPair, d *dialer) natsgo.Options {
	n := natsgo.GetDefaultOptions()
	n.Url = "nats://127.0.0.1:4222" // the dialer knows better; an address keeps the client from asking a resolver
	n.CustomDialer = d
	n.Name = layout.ReaderPrefix + o.Daemon
	n.Nkey = public
	n.SignatureCB = pair.Sign
	n.InboxPrefix = "_INBOX." + o.Daemon
	n.AllowReconnect = false
	n.Timeout = connectTimeout
	n.PingInterval = pingInterval
	n.IgnoreDiscoveredServers = true
	lost := func(_ *natsgo.Conn, err error) {
		if err == nil {
			err = natsgo.ErrConnectionClosed
		}
		s.end(fmt.Errorf("%w: %w", bus.ErrDisconnected, err))
	}
	n.DisconnectedErrCB = lost
	n.ClosedCB = func(nc *natsgo.Conn) { lost(nc, nc.LastError()) }
	n.AsyncErrorCB = func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { s.asyncError(err, o) }
	return n
}

// close ends the connection and waits until its callbacks have run.
func (s *session) close() {
	s.nc.Close()
	<-s.ctx.Done()
}

// dialer reaches the bus's unix socket, or its TCP address.
type dialer struct {
	options Options
	ctx     context.Context
	// failure is why the last dial failed, in better words than the client's "no servers".
	failure error
}

func (d *dialer) Dial(_, _ string) (net.Conn, error) {
	network, address := "unix", d.options.Socket
	if d.options.Server != "" {
		network, address = "tcp", d.options.Server
	}
	connect := d.options.Connect
	if connect == nil {
		connect = func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, network, address)
		}
	}
	conn, err := connect(d.ctx)
	d.failure = err
	return conn, err
}

// refused finds the subject in the server's words on a permission violation.
var refused = regexp.MustCompile(`(?:Publish|Subscription) to "([^"]+)"`)

func (s *session) asyncError(err error, o Options) {
	if !errors.Is(err, natsgo.ErrPermissionViolation) {
		o.Log.Warn("the bus connection reports an error", "error", err)
		return
	}
	match := refused.FindStringSubmatch(err.Error())
	if match == nil {
		o.Log.Error("the bus refused an operation", "error", err)
		return
	}
	subject := strings.TrimPrefix(match[1], layout.RefusedPrefix)
	s.mu.Lock()
	told := slices.Clone(s.refusals[subject])
	s.mu.Unlock()
	for _, r := range told {
		r.tell(fmt.Errorf("%s to %s: %w", o.Daemon, subject, bus.ErrDenied))
	}
	if len(told) == 0 {
		o.Log.Error("the bus refused an operation that this daemon's contract doesn't list",
			"subject", subject, "error", err)
	}
}

// attempt is ctx for something on subject: it also ends, with the reason as its cause, when the
// connection breaks and when the bus refuses the subject.
func (s *session) attempt(ctx context.Context, subject string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &refusal{tell: cancel}
	s.mu.Lock()
	s.refusals[subject] = append(s.refusals[subject], r)
	s.mu.Unlock()
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		left := slices.DeleteFunc(s.refusals[subject], func(o *refusal) bool { return o == r })
		if len(left) == 0 {
			delete(s.refusals, subject)
			return
		}
		s.refusals[subject] = left
	}
}

// request sends m to the bus itself and waits for the reply; its errors are the bus package's.
func (s *session) request(ctx context.Context, m *natsgo.Msg) (*natsgo.Msg, error) {
	ctx, done := s.attempt(ctx, m.Subject)
	defer done()
	reply, err := s.nc.RequestMsgWithContext(ctx, m)
	return reply, s.failure(ctx, m, err)
}

// call sends m to the daemon that serves its subject and waits for the reply. The reply's subject names the caller and
// the call, so that permissions can let a daemon answer its own calls and reach nothing else of the caller's.
func (s *session) call(ctx context.Context, caller string, m *natsgo.Msg) (*natsgo.Msg, error) {
	ctx, done := s.attempt(ctx, m.Subject)
	defer done()
	m.Reply = strings.Join([]string{"_REPLY", caller, m.Subject, nuid.Next()}, ".")
	// The client's own channel has room for 65,536 messages, which take 512 KiB.
	replies := make(chan *natsgo.Msg, 1)
	sub, err := s.nc.ChanSubscribe(m.Reply, replies)
	if err != nil {
		return nil, s.failure(ctx, m, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a connection that is gone
	if err := s.nc.PublishMsg(m); err != nil {
		return nil, s.failure(ctx, m, err)
	}
	select {
	case reply := <-replies:
		if len(reply.Data) == 0 && reply.Header.Get("Status") == "503" {
			return nil, bus.ErrNoResponder
		}
		return reply, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// failure is err in the bus package's words.
func (s *session) failure(ctx context.Context, m *natsgo.Msg, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, natsgo.ErrNoResponders):
		return bus.ErrNoResponder
	case errors.Is(err, natsgo.ErrMaxPayload):
		return fmt.Errorf("%w: %s has %d bytes", bus.ErrTooLarge, m.Subject, len(m.Data))
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s.nc.IsClosed():
		return fmt.Errorf("%w: %w", bus.ErrDisconnected, err)
	}
	return err
}
