package cri

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"google.golang.org/grpc/mem"
)

// quickConn is a connection on a unix socket whose reads and writes are cheap for a process that is idle between them.
// Go prepares for every system call to block: it wakes its monitor thread, which then looks every 20 µs whether it
// does. These calls can't block, since the socket doesn't, and there are four of them to a call of the runtime; without
// the preparations a call costs half the CPU time.
type quickConn struct {
	net.Conn
	reads, writes half
}

// half is one direction of a connection.
type half struct {
	mu   sync.Mutex
	call uintptr
	raw  syscall.RawConn
	// ready is try, made once: a closure per call would be allocated.
	ready func(fd uintptr) bool

	// Of the call under way: where its bytes are or come to, and its end.
	data []byte
	// size and pool are where data comes from where the caller doesn't give it.
	size  int
	pool  mem.BufferPool
	taken *[]byte
	n     int
	errno syscall.Errno
}

func newQuickConn(conn *net.UnixConn) (net.Conn, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &quickConn{Conn: conn}
	c.reads.raw, c.reads.call, c.reads.ready = raw, syscall.SYS_READ, c.reads.try
	c.writes.raw, c.writes.call, c.writes.ready = raw, syscall.SYS_WRITE, c.writes.try
	return c, nil
}

// try makes the system call; it reports whether that is done, even with an error, and not to be made again when the
// socket is ready.
func (h *half) try(fd uintptr) bool {
	if h.pool != nil && h.taken == nil {
		h.taken = h.pool.Get(h.size)
		h.data = *h.taken
	}
	for {
		n, _, errno := syscall.RawSyscall(h.call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(h.data))), uintptr(len(h.data)))
		switch errno {
		case 0:
			h.n, h.errno = int(n), 0
			return true
		case syscall.EINTR:
		case syscall.EAGAIN:
			if h.taken != nil {
				h.pool.Put(h.taken)
				h.taken, h.data = nil, nil
			}
			return false
		default:
			h.n, h.errno = 0, errno
			return true
		}
	}
}

// failure is the error of the system call.
func (h *half) failure(op string) error {
	if h.errno == 0 {
		return nil
	}
	return os.NewSyscallError(op, h.errno)
}

// Read is io.Reader's.
func (c *quickConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	h := &c.reads
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data = p
	defer func() { h.data = nil }()
	if err := h.raw.Read(h.ready); err != nil {
		return 0, err
	}
	if h.n == 0 && h.errno == 0 {
		return 0, io.EOF
	}
	return h.n, h.failure("read")
}

// ReadOnReady is Read into a buffer of the pool that is taken only when there is something to read: gRPC prefers it,
// since a connection that is silent then holds no memory. The caller gives the buffer back.
func (c *quickConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	h := &c.reads
	h.mu.Lock()
	defer h.mu.Unlock()
	h.size, h.pool = size, pool
	err := h.raw.Read(h.ready)
	buffer, n := h.taken, h.n
	h.taken, h.data, h.pool = nil, nil, nil
	if err == nil {
		err = h.failure("read")
		if err == nil && n == 0 {
			err = io.EOF
		}
	}
	if err != nil {
		if buffer != nil {
			pool.Put(buffer)
		}
		return nil, 0, err
	}
	return buffer, n, nil
}

// Write is io.Writer's: it writes all, or says why not.
func (c *quickConn) Write(p []byte) (int, error) {
	h := &c.writes
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.data = nil }()
	written := 0
	for written < len(p) {
		h.data = p[written:]
		if err := h.raw.Write(h.ready); err != nil {
			return written, err
		}
		if err := h.failure("write"); err != nil {
			return written, err
		}
		written += h.n
	}
	return written, nil
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return conn, nil
	}
	return newQuickConn(unix)
}
