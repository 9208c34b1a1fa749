package logind

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"

	"kubelot.dev/bus/pause"
	"kubelot.dev/daemon/fdstore"
)

const (
	service    = "org.freedesktop.login1"
	path       = dbus.ObjectPath("/org/freedesktop/login1")
	manager    = "org.freedesktop.login1.Manager"
	announces  = "PrepareForShutdown"
	inProgress = "org.freedesktop.login1.OperationInProgress"

	// purpose is the beginning of the names under which the supervisor keeps the lock.
	purpose = "shutdown-lock"

	reconnectEvery = time.Second
	limitEvery     = time.Minute // looks whether a limit that is too short was changed, at last
	callTimeout    = 10 * time.Second
)

// ConfDir is where logind reads what overrides its configuration.
const ConfDir = "/etc/systemd/logind.conf.d"

// Options are the settings of a Lock.
type Options struct {
	// Period is how long the pods take at most. Reserve is added to it if logind's limit has to be raised.
	Period, Reserve time.Duration
	ConfDir         string
	Log             *slog.Logger
	// Store keeps the lock when this process is killed; nil for none.
	Store *fdstore.Store
}

// Lock is logind's delay lock. Its methods may be called from several goroutines.
type Lock struct {
	Options
	wanted atomic.Bool
	limit  atomic.Int64
	wake   chan struct{}
	// held is the lock, fresh true if this process has taken it. told is true once logind was told to read its
	// configuration. They belong to the goroutine of Run.
	held  *fdstore.File
	fresh bool
	told  bool
}

// New returns a lock that isn't held. It starts nothing.
func New(o Options) *Lock { return &Lock{Options: o, wake: make(chan struct{}, 1)} }

// Want sets whether the lock is to be held.
func (l *Lock) Want(held bool) {
	l.wanted.Store(held)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Limit is how long logind waits for the lock; zero while that isn't known.
func (l *Lock) Limit() time.Duration { return time.Duration(l.limit.Load()) }

// Run connects to logind, and connects again when the connection ends, until ctx ends. If the lock is held then, the
// supervisor keeps it for the next process.
func (l *Lock) Run(ctx context.Context, announced func(shuttingDown bool), problem func(error)) {
	for _, f := range l.Store.Inherited(purpose) {
		l.replace(f)
	}
	var before string
	short := 0 // how often the limit was too short
	for ctx.Err() == nil {
		err := l.session(ctx, announced, problem)
		if ctx.Err() != nil {
			return
		}
		err = fmt.Errorf("%w: the node's pods aren't ended in order when the machine shuts down; see systemctl status "+
			"systemd-logind, or end them by kubelot shutdown start", err)
		problem(err)
		if short++; !errors.Is(err, errLimit) {
			short = 1
		}
		retry := pause.After(short, reconnectEvery, limitEvery)
		if text := err.Error(); text != before {
			before = text
			l.Log.Warn("can't hear of shutdowns from logind, retrying", "error", err, "retry_after", retry)
		}
		l.waitToConnect(ctx, retry)
	}
}

// waitToConnect waits before the next connection. It gives up the lock if it isn't wanted any more.
func (l *Lock) waitToConnect(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	case <-l.wake:
	}
	if !l.wanted.Load() {
		l.replace(nil)
	}
}

// session is one connection. It returns why it has ended.
func (l *Lock) session(ctx context.Context, announced func(bool), problem func(error)) error {
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("connect to the system bus: %w", err)
	}
	defer func() { _ = conn.Close() }() // nobody can act on a failure
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	if err := subscribe(ctx, conn); err != nil {
		return err
	}
	if err := l.raise(ctx, conn); err != nil {
		return err
	}
	for {
		// A logind that was started again is asked too: it may have announced something while nobody listened.
		var preparing bool
		if err := property(ctx, conn, "PreparingForShutdown", &preparing); err != nil {
			return err
		}
		announced(preparing)
		if err := l.apply(ctx, conn); err != nil {
			return err
		}
		problem(nil)
		if err := l.hear(ctx, conn, signals, announced); err != nil {
			return err
		}
	}
}

// hear handles signals. It returns nil when logind was started again, and an error when the connection has ended.
func (l *Lock) hear(ctx context.Context, conn *dbus.Conn, signals <-chan *dbus.Signal, announced func(bool)) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.wake:
			if err := l.apply(ctx, conn); err != nil {
				return err
			}
		case s, open := <-signals:
			if !open {
				return errors.New("the connection to the system bus has ended")
			}
			if s.Name == "org.freedesktop.DBus.NameOwnerChanged" && started(s.Body) {
				l.Log.Info("logind was started again")
				return nil
			}
			if shuttingDown, ok := announcement(s); ok {
				l.Log.Info("logind announces", "shutdown", shuttingDown)
				announced(shuttingDown)
			}
		}
	}
}

// started reports whether a NameOwnerChanged signal says that logind has started.
func started(body []any) bool {
	if len(body) != 3 || body[0] != service {
		return false
	}
	owner, _ := body[2].(string)
	return owner != ""
}

// announcement returns the argument of a PrepareForShutdown signal.
func announcement(s *dbus.Signal) (shuttingDown, ok bool) {
	if s.Name != manager+"."+announces || len(s.Body) != 1 {
		return false, false
	}
	shuttingDown, ok = s.Body[0].(bool)
	return shuttingDown, ok
}

func subscribe(ctx context.Context, conn *dbus.Conn) error {
	err := errors.Join(
		conn.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(path), dbus.WithMatchInterface(manager),
			dbus.WithMatchMember(announces), dbus.WithMatchSender(service)),
		conn.AddMatchSignalContext(ctx, dbus.WithMatchSender("org.freedesktop.DBus"),
			dbus.WithMatchInterface("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"),
			dbus.WithMatchArg(0, service)),
	)
	if err != nil {
		return fmt.Errorf("subscribe to logind's signals: %w", err)
	}
	return nil
}

// property reads one of logind's properties.
func property(ctx context.Context, conn *dbus.Conn, name string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var v dbus.Variant
	err := conn.Object(service, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager,
		name).Store(&v)
	if err == nil {
		err = v.Store(into)
	}
	if err != nil {
		return fmt.Errorf("read logind's property %s: %w", name, err)
	}
	return nil
}

// apply takes or releases the lock, as it is wanted.
func (l *Lock) apply(ctx context.Context, conn *dbus.Conn) error {
	switch {
	case !l.wanted.Load():
		l.replace(nil)
		return nil
	case l.held != nil && l.fresh && !l.held.HungUp():
		return nil
	}
	file, err := inhibit(ctx, conn)
	var refused dbus.Error
	if errors.As(err, &refused) && refused.Name == inProgress {
		if l.held == nil {
			l.Log.Warn("logind grants no lock because the machine is shutting down already; it may not wait for the pods")
		}
		return nil
	}
	if err != nil {
		return err
	}
	l.replace(l.Store.Keep(purpose, file))
	l.fresh = true
	l.Log.Info("the machine's shutdown will wait for the pods", "at_most", l.Limit())
	return nil
}

// replace releases the lock that is held, and holds another one instead; nil for none.
func (l *Lock) replace(by *fdstore.File) {
	if l.held != nil {
		l.held.Drop()
	}
	l.held, l.fresh = by, false
}

// inhibit takes a lock, in the kubelet's words.
func inhibit(ctx context.Context, conn *dbus.Conn) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var fd dbus.UnixFD
	err := conn.Object(service, path).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", "kubelet",
		"Kubelet needs time to handle node shutdown", "delay").Store(&fd)
	if err != nil {
		return nil, fmt.Errorf("take logind's lock: %w", err)
	}
	return os.NewFile(uintptr(fd), "logind's lock"), nil
}
