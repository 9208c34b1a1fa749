package embed

import (
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// inFlight is how many bytes of a client in this process may be on their way to the server, as in the buffer of a unix socket.
	inFlight = 256 << 10
	// maxSpare is how large a buffer may be that is kept for the next messages, in bytes.
	maxSpare = 8 << 10
	// drainTime bounds how long a connection that is closed waits for what was written on it.
	drainTime = time.Second
)

// connectInProcess makes a connection to the server without a socket. The server's own is a pipe without a buffer, on which both
// sides can wait for each other: a client that writes for a server that refuses it.
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
	spare   []byte // for waiting
	closed  bool
	err     error // of the pipe
}

// Write waits only while too much is on its way.
func (c *bufferedConn) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) > 0 && len(c.waiting)+len(data) > inFlight && c.err == nil && !c.closed {
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

// pump hands on what was written until the connection is closed and nothing is left, or the server's side is closed.
func (c *bufferedConn) pump() {
	defer close(c.ended)
	for {
		c.mu.Lock()
		for len(c.waiting) == 0 && !c.closed {
			c.changed.Wait()
		}
		data := c.waiting
		c.waiting, c.spare = c.spare, nil
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
		c.err = err
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
