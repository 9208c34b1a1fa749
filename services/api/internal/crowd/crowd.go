// Package crowd bounds the resources that clients on the network can use up in a server. A connection is a stranger
// until one of its requests was allowed. After that it is a guest.
//
// # Guarantees
//
//   - The number of strangers is bounded. When one more comes, the address with the most strangers loses its oldest. So
//     a crowd from one address can't keep out a client from another address. A crowd from the client's own address can
//     do that only if its connections come faster than a request is allowed.
//   - A stranger's connection is closed after a time, even if it is busy.
//   - What strangers send is bounded: a few kilobytes for each, and more for only a few at a time. The others wait.
//   - The number of strangers' requests that are handled at a time is bounded. The others wait.
//   - No address takes more than a share of what the clients wait for.
//   - The number of requests that are neither allowed nor refused yet is bounded, over all connections. When one more
//     comes, the address with the most of them loses the connection that has the most. A refused request counts until
//     the client has taken the answer, since an HTTP/2 client can have the server keep many.
//   - The number of guests is bounded. When one more comes, the one that has been idle for longest is closed. If none
//     is idle, the request of the new one is refused.
//   - The number of allowed requests that are handled at a time is bounded, over all connections. More of those that
//     last are refused. The others wait: they have few places of their own, since answers in the making need memory.
package crowd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Limits are the bounds. All must be set, but Guests, Lasts, Pages and Allowed are of no use to a server without
// Inside: its clients stay strangers.
type Limits struct {
	Strangers, Guests int
	// Patience is how long a stranger may stay.
	Patience time.Duration
	// Small is how many bytes each stranger may send. Up to Senders strangers at a time may send more, up to Large.
	Small, Large int64
	Senders      int
	// Requests is how many requests of strangers are handled at a time, Pending how many requests there may be that are
	// neither allowed nor refused.
	Requests, Pending int
	// Lasts reports whether a request may last. Allowed is how many of those that are allowed are handled at a time,
	// Pages how many of the others. One HTTP/2 connection may have many.
	Lasts          func(*http.Request) bool
	Pages, Allowed int
}

// logEvery is how often it is logged that connections are closed.
const logEvery = time.Minute

// Crowd is the connections of one server.
type Crowd struct {
	limits                            Limits
	log                               *slog.Logger
	senders, requests, pages, allowed chan struct{}

	mu      sync.Mutex
	present map[*Conn]bool
	homes   map[netip.Prefix]*home
	pending int // requests, also of connections that are closed by now
	logged  time.Time
}

// New returns a crowd without connections.
func New(limits Limits, log *slog.Logger) *Crowd {
	return &Crowd{
		limits: limits, log: log, present: map[*Conn]bool{}, homes: map[netip.Prefix]*home{},
		senders: make(chan struct{}, limits.Senders), requests: make(chan struct{}, limits.Requests),
		pages: make(chan struct{}, limits.Pages), allowed: make(chan struct{}, limits.Allowed),
	}
}

// Listener bounds what l accepts. If the server uses TLS, that must be around this listener.
func (c *Crowd) Listener(l net.Listener) net.Listener { return &listener{Listener: l, crowd: c} }

type listener struct {
	net.Listener
	crowd *Crowd
}

func (l *listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.crowd.enter(inner), nil
}

// enter takes a new connection in as a stranger.
func (c *Crowd) enter(inner net.Conn) *Conn {
	conn := &Conn{Conn: inner, crowd: c, remote: remote(inner), since: time.Now(), closed: make(chan struct{})}
	conn.patience = time.AfterFunc(c.limits.Patience, func() {
		if conn.isStranger() {
			c.dismiss(conn, "none of its requests was allowed in time")
		}
	})
	c.mu.Lock()
	c.present[conn] = true
	conn.home = c.homes[conn.remote]
	if conn.home == nil {
		conn.home = &home{senders: share(c.senders), requests: share(c.requests), pages: share(c.pages)}
		c.homes[conn.remote] = conn.home
	}
	conn.home.conns++
	c.mu.Unlock()
	c.bound(c.limits.Strangers, (*Conn).strangersLocked, "there are too many of which no request was allowed yet")
	return conn
}

// bound closes a connection if there is more than the limit of what is counted.
func (c *Crowd) bound(limit int, counted func(*Conn) int, why string) {
	c.mu.Lock()
	count, all := map[netip.Prefix]int{}, 0
	for conn := range c.present {
		count[conn.remote] += counted(conn)
		all += counted(conn)
	}
	var leaves *Conn
	for conn := range c.present {
		if leaves == nil || cmp.Or(count[conn.remote]-count[leaves.remote], counted(conn)-counted(leaves),
			leaves.since.Compare(conn.since)) > 0 {
			leaves = conn
		}
	}
	c.mu.Unlock()
	if all > limit {
		c.dismiss(leaves, why)
	}
}

// dismiss closes a connection for a reason that is logged now and then.
func (c *Crowd) dismiss(conn *Conn, why string) {
	_ = conn.Close() // whatever is left of it
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.logged) >= logEvery {
		c.logged = time.Now()
		c.log.Warn("connections to the node's API are closed", "remote", conn.remote.String(), "reason", why)
	}
}

// State is for http.Server.ConnState. It notes since when a connection is idle.
func (c *Crowd) State(server net.Conn, state http.ConnState) {
	conn := find(server)
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.idle = time.Time{}
	if state == http.StateIdle {
		conn.idle = time.Now()
	}
}

type connKey struct{}

// Context is for http.Server.ConnContext. It puts the connection into the context of its requests.
func (c *Crowd) Context(ctx context.Context, server net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, find(server))
}

// find is the connection below that of a server.
func find(server net.Conn) *Conn {
	if secure, ok := server.(*tls.Conn); ok {
		server = secure.NetConn()
	}
	return server.(*Conn)
}

// welcome makes the connection a guest. It reports whether there was room.
func (c *Crowd) welcome(conn *Conn) bool {
	c.mu.Lock()
	if conn.guest {
		c.mu.Unlock()
		return true
	}
	guests := 0
	var leaves *Conn
	for other := range c.present {
		if !other.guest {
			continue
		}
		guests++
		if !other.idle.IsZero() && (leaves == nil || other.idle.Before(leaves.idle)) {
			leaves = other
		}
	}
	full := guests >= c.limits.Guests
	if full && leaves == nil {
		c.mu.Unlock()
		return false
	}
	conn.guest = true
	conn.patience.Stop()
	conn.releaseLocked()
	c.mu.Unlock()
	if full {
		c.dismiss(leaves, "there are too many, and it was idle")
	}
	return true
}

// Conn is one connection.
type Conn struct {
	net.Conn
	crowd    *Crowd
	remote   netip.Prefix
	home     *home
	since    time.Time
	patience *time.Timer
	closed   chan struct{}

	// Below: the crowd's lock.
	guest   bool
	pending int       // requests that are neither allowed nor refused
	idle    time.Time // since when the server has had no request; zero while one is under way
	read    int64     // bytes that it sent as a stranger
	large   bool      // whether it is one of the Senders
}

// errTooMuch ends the connection of a stranger that sends more than any request needs.
var errTooMuch = errors.New("the client sends too much before one of its requests was allowed")

// Read waits for its turn if the connection is a stranger that has sent Small bytes, and fails after Large bytes.
func (c *Conn) Read(data []byte) (int, error) {
	if err := c.awaitTurn(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(data)
	c.crowd.mu.Lock()
	defer c.crowd.mu.Unlock()
	if !c.guest {
		c.read += int64(n)
	}
	return n, err
}

// awaitTurn waits until the connection may be read. A stranger that has sent a lot waits until it is one of the few
// that may send more.
func (c *Conn) awaitTurn() error {
	c.crowd.mu.Lock()
	guest, read, large := c.guest, c.read, c.large
	c.crowd.mu.Unlock()
	switch {
	case guest || read < c.crowd.limits.Small:
		return nil
	case read >= c.crowd.limits.Large:
		return errTooMuch
	case large:
		return nil
	}
	if !c.home.senders.take(c.closed) {
		return net.ErrClosed
	}
	c.crowd.mu.Lock()
	defer c.crowd.mu.Unlock()
	c.large = true
	if c.guest || !c.crowd.present[c] {
		c.releaseLocked()
	}
	return nil
}

// releaseLocked lets another stranger send more.
func (c *Conn) releaseLocked() {
	if c.large {
		c.large = false
		c.home.senders.give()
	}
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.crowd.mu.Lock()
	if c.crowd.present[c] {
		delete(c.crowd.present, c)
		if c.home.conns--; c.home.conns == 0 {
			delete(c.crowd.homes, c.remote)
		}
		close(c.closed)
		c.releaseLocked()
	}
	c.crowd.mu.Unlock()
	c.patience.Stop()
	return c.Conn.Close()
}

func (c *Conn) isStranger() bool {
	c.crowd.mu.Lock()
	defer c.crowd.mu.Unlock()
	return !c.guest
}

// strangersLocked is 1 for a stranger.
func (c *Conn) strangersLocked() int {
	if c.guest {
		return 0
	}
	return 1
}

func (c *Conn) pendingLocked() int { return c.pending }

// remote is the address of the other side. Of an IPv6 address it is the prefix of the network (/64).
func remote(conn net.Conn) netip.Prefix {
	addr, _ := conn.RemoteAddr().(*net.TCPAddr)
	ip := addr.AddrPort().Addr().Unmap()
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	prefix, _ := ip.Prefix(bits) // it has that many
	return prefix
}
