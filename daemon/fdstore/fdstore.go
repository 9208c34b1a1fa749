// Package fdstore lets a connection outlive the process that made it. A server that sees its client hang up cancels
// what the client asked for. The supervisor holds a duplicate of the connection's file descriptor, so the connection
// stays open when the client is killed, and the server finishes. The same holds for a pipe whose being open is a lock.
//
// # Reads
//
// The environment that systemd gives to a service, and kubelot up to a daemon: NOTIFY_SOCKET, LISTEN_FDS,
// LISTEN_FDNAMES and LISTEN_PID.
//
// # Writes
//
// sd_notify messages to the supervisor: FDSTORE=1 (for a pipe with FDPOLL=0) and FDSTOREREMOVE=1, each with FDNAME
// (sd_notify(3), systemd.service(5) under FileDescriptorStoreMax).
//
// # Guarantees
//
//   - The supervisor has the duplicate before anything is sent on the connection.
//   - A connection that is closed in order is removed from the supervisor too. Only the connections of a killed process
//     are inherited.
//   - If the supervisor has no store, a warning is logged and connections work without it.
package fdstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// notifyTimeout bounds the wait for a supervisor that doesn't read its socket.
const notifyTimeout = 2 * time.Second

// Store is the supervisor's store of this process's file descriptors. A nil Store stands for a supervisor without a
// store: it dials, and has inherited nothing.
type Store struct {
	log    *slog.Logger
	socket string // of the supervisor; empty for none
	dialed atomic.Uint64

	mu        sync.Mutex
	inherited []*File
}

// Dialer returns a function that connects to the unix socket at a path and stores the connection. purpose is the
// beginning of the names under which they are stored.
func (s *Store) Dialer(purpose string) func(ctx context.Context, path string) (net.Conn, error) {
	return func(ctx context.Context, path string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err != nil || s == nil || s.socket == "" {
			return c, err
		}
		name := s.Name(purpose)
		if err := s.store(c, name); err != nil {
			s.log.Warn("can't give the supervisor a connection to keep: if this process is killed, its calls on that "+
				"connection are cancelled", "socket", path, "error", err)
			return c, nil
		}
		return &conn{Conn: c, store: s, name: name}, nil
	}
}

// Name is a name for a file descriptor. It is unique among those of this process and those before it, since
// FDSTOREREMOVE removes all that have a name. The time puts them in order.
func (s *Store) Name(purpose string) string {
	return fmt.Sprintf("%s-%d-%d-%d", purpose, time.Now().UnixMilli(), os.Getpid(), s.dialed.Add(1))
}

func (s *Store) store(c net.Conn, name string) error {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T has no file descriptor", c)
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return err
	}
	var notifyErr error
	err = control.Control(func(fd uintptr) { notifyErr = s.notify("FDSTORE=1\nFDNAME="+name, int(fd)) })
	return errors.Join(err, notifyErr)
}

// remove takes a name out of the supervisor's store.
func (s *Store) remove(name string) {
	if err := s.notify("FDSTOREREMOVE=1\nFDNAME=" + name); err != nil {
		s.log.Warn("can't tell the supervisor that a connection has ended; the supervisor keeps it open",
			"name", name, "error", err)
	}
}

// notify sends one message, with duplicates of the file descriptors.
func (s *Store) notify(message string, fds ...int) error {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // the message is sent by then, or its error known
	if err := c.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	// Package net refuses to send file descriptors on a connected datagram socket.
	var sendErr error
	err = raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendmsg(int(fd), []byte(message), rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	return errors.Join(err, sendErr)
}

// conn is a stored connection.
type conn struct {
	net.Conn
	store *Store
	name  string
	once  sync.Once
}

// Close closes the connection here and at the supervisor.
func (c *conn) Close() error {
	c.once.Do(func() { c.store.remove(c.name) })
	return c.Conn.Close()
}

// purposeOf is the purpose in a name of this package.
func purposeOf(name string) string {
	parts := strings.Split(name, "-")
	return strings.Join(parts[:max(0, len(parts)-3)], "-")
}

// stored is when the name was given; ok is false for a name that isn't of this package.
func stored(name string) (unixMilli int64, ok bool) {
	parts := strings.Split(name, "-")
	if len(parts) < 4 {
		return 0, false
	}
	unixMilli, err := strconv.ParseInt(parts[len(parts)-3], 10, 64)
	return unixMilli, err == nil
}
