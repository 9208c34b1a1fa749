package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
)

// Conn is a daemon's connection to the bus. Typed topics are read and written through it.
type Conn struct {
	transport Transport
	daemon    string
	log       *slog.Logger

	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	flushers []func(context.Context) error

	unread unread
}

// NewConn wraps a transport for the named daemon. Close it to end what its writers run.
func NewConn(transport Transport, daemon string, log *slog.Logger) *Conn {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Conn{transport: transport, daemon: daemon, log: log, ctx: ctx, cancel: cancel}
}

// Daemon is the name under which this connection writes.
func (c *Conn) Daemon() string { return c.daemon }

// Transport is the byte level below the typed topics, for tools such as the tap.
func (c *Conn) Transport() Transport { return c.transport }

// Close ends all writers and the connection. It doesn't wait for unsent messages: use Writer.Flush for that.
func (c *Conn) Close() {
	c.cancel(fmt.Errorf("bus connection of %s closed", c.daemon))
	c.wg.Wait()
	c.transport.Close()
}

// Flush waits until the bus has taken, or refused for good, everything that the writers and publishers were given. A
// daemon calls it before it stops.
func (c *Conn) Flush(ctx context.Context) error {
	c.mu.Lock()
	flushers := slices.Clone(c.flushers)
	c.mu.Unlock()
	var errs []error
	for _, flush := range flushers {
		errs = append(errs, flush(ctx))
	}
	return errors.Join(errs...)
}

// flushes makes Flush wait for a writer or publisher.
func (c *Conn) flushes(flush func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushers = append(c.flushers, flush)
}

// background runs work until the connection is closed, which waits for it.
func (c *Conn) background(work func(ctx context.Context)) {
	c.wg.Go(func() { work(c.ctx) })
}

// ignore reports whether a message can't be used, and says so. Of a schema that isn't known it says so once.
func (c *Conn) ignore(t Topic, m Message, err error) bool {
	again := c.unread.note(t.Name(), m.Header[HeaderDaemon], err)
	if err == nil || again {
		return err != nil
	}
	text := "ignoring an invalid message from the bus"
	if _, is := errors.AsType[*SchemaError](err); is {
		text = "ignoring messages from the bus in an unknown schema; this is logged once"
	}
	c.log.Warn(text, "subject", m.Subject, "daemon", m.Header[HeaderDaemon], "error", err)
	return true
}

// header are the headers of a message of topic t.
func (c *Conn) header(t Topic) map[string]string {
	return map[string]string{HeaderSchema: strconv.Itoa(t.Schema()), HeaderDaemon: c.daemon}
}
