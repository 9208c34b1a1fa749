package embed

import (
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// inFlight is how many bytes of a client may be on their way to the server, about as many as a unix socket holds.
	inFlight = 256 << 10
	// maxSpare is how large a buffer may be that is kept for the next messages, in bytes.
	maxSpare = 8 << 10
	// drainTime bounds how long a connection that is closed waits for what was written on it.
	drainTime = time.Second
)

// connectInProcess makes a connection to the server without a socket. The server's own is a pipe without a buffer, on
// which both sides can wait for each other: a client that is still writing, and a server that is writing its refusal.
func connectInProcess(s *server.Server) (net.Conn, error) {
	pipe, err := s.InProcessConn()
	if err != nil {
		return nil, err
	}
	c := &bufferedConn{Conn: pipe, ended: make(chan struct{})}
	c.changed.L = &c.mu
	go c.pump()
	return c, nil
}

// bufferedConn is a connection on which Write doesn't wait for the other side to read.
type bufferedConn struct {
	net.Conn
	ended chan struct{} // closed when pump has ended

	mu      sync.Mutex
	changed sync.Cond
	waiting []byte // written and not taken by pump yet
	taken   int    // bytes that pump hands on at this moment
	spare   []byte // for waiting
	closed  bool
	err     error // of the pipe
}

// Write waits only while too much is on its way.
func (c *bufferedConn) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.full(len(data)) && c.err == nil && !c.closed {
		c.changed.Wait()
	}
	switch {
	case c.err != nil:
		return 0, c.err
	case c.closed:
		return 0, net.ErrClosed
	}
	c.waiting = append(c.waiting, data...)
	c.changed.Broadcast()
	return len(data), nil
}

// full reports whether so many bytes more would be too much on the way.
func (c *bufferedConn) full(more int) bool {
	before := len(c.waiting) + c.taken
	return before > 0 && before+more > inFlight
}

// pump hands on what was written until the connection is closed and nothing is left, or the server's side is closed.
func (c *bufferedConn) pump() {
	defer close(c.ended)
	for {
		c.mu.Lock()
		for len(c.waiting) == 0 && !c.closed {
			c.changed.Wait()
		}
		data := c.waiting
		c.waiting, c.spare, c.taken = c.spare, nil, len(data)
		c.changed.Broadcast()
		c.mu.Unlock()
		if len(data) == 0 {
			return
		}
		_, err := c.Conn.Write(data)
		c.mu.Lock()
		if cap(data) <= maxSpare {
			c.spare = data[:0]
		}
		c.err, c.taken = err, 0
		c.changed.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Close closes the connection behind what was written.
func (c *bufferedConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	// Without a deadline on it, a pipe's write ends only when somebody reads.
	_ = c.Conn.SetWriteDeadline(time.Now().Add(drainTime))
	<-c.ended
	return c.Conn.Close()
}

// SetDeadline is for reading alone: what is written doesn't wait.
func (c *bufferedConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing.
func (c *bufferedConn) SetWriteDeadline(time.Time) error { return nil }
