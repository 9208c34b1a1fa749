package sleep

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// parkLimit is how long the server behind a door may take to stop accepting.
	parkLimit = time.Second
	// lately is how long ago somebody must have come in for the door not to be in use. Who asks once a minute would wake
	// the daemon each time, which costs more than to stay awake.
	lately = 2 * time.Minute
)

// Door is where clients of a daemon come in: a unix socket that stays open while the daemon sleeps. A nil Door is one
// that doesn't.
type Door struct {
	purpose, path string
	lately        time.Duration

	mu        sync.Mutex
	inherited *net.UnixListener
	now       *listener
}

// Open returns what an earlier life of the process has left open, or else what listen makes.
func (d *Door) Open(listen func() (*net.UnixListener, error)) (net.Listener, error) {
	if d == nil {
		return listen()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.inherited
	d.inherited = nil
	if l == nil {
		var err error
		if l, err = listen(); err != nil {
			return nil, err
		}
	}
	d.now = &listener{UnixListener: l, closed: make(chan struct{})}
	return d.now, nil
}

// shut has nobody come in any more, until thaw is called. unused reports whether nobody is inside, nor was lately.
func (d *Door) shut() (unused bool, thaw func()) {
	d.mu.Lock()
	l := d.now
	d.mu.Unlock()
	if l == nil {
		return false, func() {}
	}
	return l.freeze(d.lately), l.thaw
}

// file is a duplicate of the socket.
func (d *Door) file() (*os.File, error) { return d.now.File() }

// listener is a door's. Connections that come while it is frozen wait in the kernel.
type listener struct {
	*net.UnixListener
	once   sync.Once
	closed chan struct{}

	mu   sync.Mutex
	open int
	last time.Time // that somebody came in
	// frozen is closed by thaw; nil while connections are accepted. parked hears of a server that has stopped accepting.
	frozen, parked chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.UnixListener.Accept()
		if err == nil {
			l.mu.Lock()
			l.open, l.last = l.open+1, time.Now()
			l.mu.Unlock()
			return &inside{Conn: c, leave: sync.OnceFunc(l.leave)}, nil
		}
		frozen := l.park()
		if frozen == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		select {
		case <-frozen:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

func (l *listener) park() (frozen <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen == nil {
		return nil
	}
	select {
	case l.parked <- struct{}{}:
	default:
	}
	return l.frozen
}

func (l *listener) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.UnixListener.Close()
}

// freeze stops the server from accepting, and reports whether it has no connection, nor had one lately.
func (l *listener) freeze(lately time.Duration) bool {
	l.mu.Lock()
	l.frozen, l.parked = make(chan struct{}), make(chan struct{}, 1)
	parked := l.parked
	l.mu.Unlock()
	if l.SetDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	limit := time.NewTimer(parkLimit)
	defer limit.Stop()
	select {
	case <-parked:
	case <-limit.C:
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open == 0 && time.Since(l.last) > lately
}

func (l *listener) thaw() {
	// It fails for a closed listener only, whose server knows.
	_ = l.SetDeadline(time.Time{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen != nil {
		close(l.frozen)
		l.frozen = nil
	}
}

// inside is a connection that keeps the daemon awake.
type inside struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *inside) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
