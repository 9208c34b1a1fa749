// Package nats is the bus transport that talks to kubelot-bus with the NATS protocol.
//
// # Reads and writes
//
// The unix socket of kubelot-bus (or a TCP address, for a tap on another machine) and the daemon's
// private key, which is read again before each connection.
//
// # Owns
//
// One connection, made again with short jittered pauses whenever it breaks, and one consumer on the
// bus for each filter of each reader.
//
// # Guarantees
//
//   - Dial doesn't wait: the bus may come up later, go away and come back, with or without its store.
//   - After a reconnection a reader goes on behind the last message that it got. If the bus has another store, it
//     begins again.
//   - What the bus refuses fails with bus.ErrDenied at once, although NATS reports it out of band.
//   - No timer runs while nothing happens, except for heartbeats of 30 s and more.
package nats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/backoff"
	"kubelot.dev/bus/pause"
)

const (
	// firstBackoff and maxBackoff bound the pause between two attempts to connect.
	firstBackoff = 20 * time.Millisecond
	maxBackoff   = time.Second
	// reportEvery is how often a failure to connect that lasts is logged again.
	reportEvery = time.Minute
)

// Options say where the bus is and who connects.
type Options struct {
	// Socket is the path of kubelot-bus's unix socket.
	Socket string
	// Connect takes the place of the socket where the bus is in the same process; nil elsewhere. It fails while the bus is
	// away.
	Connect func(ctx context.Context) (net.Conn, error)
	// Server is a TCP address (host:port) to use instead of the socket.
	Server string
	// KeyFile holds the daemon's private nkey seed.
	KeyFile string
	// Daemon is the daemon's name without the "kubelot-" prefix.
	Daemon string
	Log    *slog.Logger
}

func (o Options) validate() error {
	switch {
	case (o.Socket == "") == (o.Server == ""):
		return errors.New("connect to the bus: exactly one of socket and server must be given")
	case o.Daemon == "":
		return errors.New("connect to the bus: the daemon's name is missing")
	case o.KeyFile == "":
		return fmt.Errorf("connect %s to the bus: the key file is missing", o.Daemon)
	case o.Log == nil:
		return fmt.Errorf("connect %s to the bus: the logger is missing", o.Daemon)
	}
	return nil
}

func (o Options) address() string {
	if o.Server != "" {
		return o.Server
	}
	return o.Socket
}

// Transport implements bus.Transport.
type Transport struct {
	options Options
	log     *slog.Logger

	// ctx ends what uses the connection; the connection itself ends after that.
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	hangUp context.CancelFunc
	hungUp chan struct{}

	mu      sync.Mutex
	closed  bool
	session *session
	changed chan struct{} // closed and replaced when session changes
}

// Dial returns at once and connects in the background, for as long as it takes. The connection
// doesn't end with ctx but with Close, so that a daemon can say its last words while it stops.
func Dial(ctx context.Context, o Options) (bus.Transport, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("connect %s to the bus: %w", o.Daemon, err)
	}
	t := &Transport{options: o, log: o.Log, changed: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	connection, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	t.hangUp, t.hungUp = hangUp, make(chan struct{})
	go func() {
		defer close(t.hungUp)
		t.run(connection)
	}()
	return t, nil
}

// Close ends the connection, all readers and servers, and waits for what it started.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel(fmt.Errorf("%w: the connection of %s was closed", bus.ErrDisconnected, t.options.Daemon))
	t.wg.Wait()
	t.hangUp()
	<-t.hungUp
}

// spawn runs work in a goroutine that Close waits for, with a context that ends with ctx and with the
// transport. After Close it runs work right away, with a context that has ended.
func (t *Transport) spawn(ctx context.Context, work func(ctx context.Context)) {
	ctx, cancel := t.within(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		cancel()
		go work(ctx)
		return
	}
	t.wg.Go(func() {
		defer cancel()
		work(ctx)
	})
}

// run keeps one session alive after another until ctx ends.
func (t *Transport) run(ctx context.Context) {
	report := reporter{log: t.log, address: t.options.address(), keyFile: t.options.KeyFile}
	pauses := backoff.Doubling(firstBackoff, maxBackoff)
	for ctx.Err() == nil {
		s, err := connect(ctx, t.options)
		if err != nil {
			report.failed(err)
			pause.For(ctx, pauses.Step())
			continue
		}
		report.connected()
		pauses = backoff.Doubling(firstBackoff, maxBackoff)
		t.set(s)
		select {
		case <-s.ctx.Done():
		case <-ctx.Done():
		}
		t.set(nil)
		s.close()
	}
}

func (t *Transport) set(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.session = s
	close(t.changed)
	t.changed = make(chan struct{})
}

// current is the session, or nil while the bus is away, and a channel that is closed when that changes.
func (t *Transport) current() (*session, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session, t.changed
}

// await waits for a session other than old.
func (t *Transport) await(ctx context.Context, old *session) (*session, error) {
	for {
		s, changed := t.current()
		if s != nil && s != old {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", bus.ErrDisconnected, context.Cause(ctx))
		case <-t.ctx.Done():
			return nil, context.Cause(t.ctx) //nolint:contextcheck // the transport's own end, not the caller's
		}
	}
}

// within ends with ctx and with the transport.
func (t *Transport) within(ctx context.Context) (context.Context, context.CancelFunc) {
	joined, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	return joined, func() { stop(); cancel(nil) }
}

// Connects implements bus.Transport.
func (t *Transport) Connects(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	t.spawn(ctx, func(ctx context.Context) {
		defer close(out)
		var last *session
		for {
			s, err := t.await(ctx, last)
			if err != nil {
				return
			}
			last = s
			select {
			case out <- struct{}{}:
			default:
			}
		}
	})
	return out
}

// reporter logs a failure to connect once and then at long intervals, and the way back.
type reporter struct {
	log              *slog.Logger
	address, keyFile string
	last             string
	denied           bool // the last failure was a refusal
	at               time.Time
}

// hungUp reports whether the other side closed the connection. After a refusal this is the same refusal, because the
// bus may hang up before its reason is read.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNRESET)
}

func (r *reporter) failed(err error) {
	if errors.Is(err, context.Canceled) {
		return // the connection is being closed
	}
	if (err.Error() == r.last || r.denied && hungUp(err)) && time.Since(r.at) < reportEvery {
		return
	}
	r.last, r.denied, r.at = err.Error(), errors.Is(err, bus.ErrDenied), time.Now()
	hint := "is kubelot-bus running?"
	if errors.Is(err, bus.ErrDenied) {
		hint = "the key is not the one that kubelot-bus made for this daemon: name another key file or restart kubelot-bus"
	}
	r.log.Warn("can't connect to the bus, retrying", "address", r.address, "key_file", r.keyFile,
		"error", err, "hint", hint)
}

func (r *reporter) connected() {
	if r.last != "" {
		r.log.Info("connected to the bus again", "address", r.address)
	}
	r.last, r.denied = "", false
}
