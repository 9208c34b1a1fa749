// Package doze is the program that waits in the place of a daemon that nothing needs. It is the same process, with the
// same supervisor and the same command line, and takes about 2 MiB (docs/adr/0034).
//
// # Reads
//
// The plan in the environment variable KUBELOT_DOZE, and the sockets that it names.
//
// # Owns
//
// The process, between the daemon that has gone to sleep and the one that is woken. It becomes the daemon again when
// somebody connects to one of the sockets, a socket's file is gone (the alarm's too), or the process gets SIGHUP.
//
// # Guarantees
//
//   - A connection that wakes the daemon is the daemon's: it is not accepted here.
//   - The daemon's last metrics are served meanwhile. Another request at that socket is answered with 503. A POST wakes
//     the daemon, and its client is to try again.
//   - systemd's watchdog is fed.
//   - SIGTERM and SIGINT end the process, which has nothing to finish. The daemon's sockets are removed.
//   - What goes wrong ends the process, so that the supervisor starts the daemon.
//
// It makes do with few packages: each one costs memory for as long as a node lives.
package doze

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// look is how often it is looked whether the sockets' files are still there.
	look = 10 * time.Second
	// patience is how long a client that asks for the metrics may take.
	patience = time.Second
	// firstFD is where handed file descriptors begin (SD_LISTEN_FDS_START).
	firstFD = 3
)

// Main waits, and becomes the daemon again. It returns the exit code if it can't.
func Main() int {
	plan, err := parse(os.Getenv(Variable))
	if err != nil {
		say(err.Error())
		return 1
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	d := dozer{Plan: plan, notify: os.Getenv("NOTIFY_SOCKET"), every: look}
	if µs, err := strconv.Atoi(os.Getenv("WATCHDOG_USEC")); err == nil && µs > 0 {
		d.every = min(d.every, time.Duration(µs)*time.Microsecond/2)
	}
	go func() {
		if s := <-signals; s != syscall.SIGHUP {
			d.leave()
			os.Exit(0)
		}
		say(d.wake().Error())
		os.Exit(1)
	}()
	d.wait()
	say(d.wake().Error())
	return 1
}

// say writes a line to the log.
func say(text string) {
	_, _ = os.Stderr.WriteString("kubelot-doze: " + text + "\n")
}

type dozer struct {
	Plan

	notify string
	// every is how often it is looked after the sockets, and the supervisor hears that the process is well.
	every time.Duration
}

// wait returns when the daemon is to wake.
func (d *dozer) wait() {
	fds := []unix.PollFd{{Fd: int32(d.Metrics), Events: unix.POLLIN}, {Fd: int32(d.Alarm), Events: unix.POLLIN}}
	for _, door := range d.Doors {
		fds = append(fds, unix.PollFd{Fd: int32(door.FD), Events: unix.POLLIN})
	}
	looked := time.Now()
	for {
		d.alive()
		n, err := unix.Poll(fds, int(d.every.Milliseconds()))
		if err != nil && err != unix.EINTR {
			say("poll: " + err.Error())
			return
		}
		// Clients of the metrics may come more often than that.
		if time.Since(looked) >= d.every {
			looked = time.Now()
			if !d.complete() {
				return
			}
		}
		if n <= 0 {
			continue
		}
		for _, fd := range fds[1:] {
			if fd.Revents != 0 {
				return
			}
		}
		if !d.answer() {
			return
		}
	}
}

// complete reports whether clients still find all sockets, and those who wake the daemon its alarm.
func (d *dozer) complete() bool {
	for _, door := range d.Doors {
		if !there(door.Path) {
			return false
		}
	}
	path := pathOf(d.Alarm)
	return path == "" || there(path)
}

// pathOf is the path at which a socket was made, if it has one.
func pathOf(fd int) string {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return ""
	}
	if u, ok := name.(*unix.SockaddrUnix); ok {
		return u.Name
	}
	return ""
}

func there(path string) bool {
	var stat unix.Stat_t
	return unix.Lstat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// alive tells the supervisor that the process is well.
func (d *dozer) alive() {
	if d.notify == "" {
		return
	}
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(s) }()
	// Without it the supervisor starts the daemon again, which is no harm.
	_ = unix.Sendto(s, []byte("WATCHDOG=1"), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: d.notify})
}

// answer serves one client of the metrics, and reports whether the daemon may sleep on.
func (d *dozer) answer() bool {
	c, _, err := unix.Accept4(d.Metrics, unix.SOCK_CLOEXEC)
	if err != nil {
		return err == unix.EINTR || err == unix.EAGAIN || err == unix.ECONNABORTED
	}
	defer func() { _ = unix.Close(c) }() // its client has all by then
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	_ = unix.SetsockoptTimeval(c, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
	_ = unix.SetsockoptTimeval(c, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
	var request [4096]byte
	n, err := unix.Read(c, request[:])
	if err != nil || n == 0 {
		return true
	}
	asked := string(request[:n])
	if !strings.HasPrefix(asked, "GET /metrics ") {
		send(c, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		return !strings.HasPrefix(asked, "POST ")
	}
	var page unix.Stat_t
	if unix.Fstat(d.Page, &page) != nil {
		return false
	}
	if send(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nConnection: close\r\n"+
		"Content-Length: "+strconv.FormatInt(page.Size, 10)+"\r\n\r\n") {
		for at := int64(0); at < page.Size; {
			if n, err := unix.Sendfile(c, d.Page, &at, int(page.Size-at)); err != nil || n == 0 {
				break // the client is gone, or doesn't read
			}
		}
	}
	return true
}

func send(c int, text string) bool {
	_, err := unix.SendmsgN(c, []byte(text), nil, nil, unix.MSG_NOSIGNAL)
	return err == nil
}

// wake makes the process the daemon again. It returns only if that can't be.
func (d *dozer) wake() error {
	var names []string
	for i, door := range d.fresh() {
		if err := unix.Dup2(door.FD, firstFD+i); err != nil {
			return err
		}
		names = append(names, door.Name)
	}
	env := make([]string, 0, len(os.Environ())+2)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, Variable+"=") && !strings.HasPrefix(v, "LISTEN_") {
			env = append(env, v)
		}
	}
	if len(names) > 0 {
		env = append(env, "LISTEN_FDS="+strconv.Itoa(len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
	if err := syscall.Exec(os.Args[0], os.Args, env); err != nil {
		return &os.PathError{Op: "exec", Path: os.Args[0], Err: err}
	}
	return nil
}

// fresh are the doors that are still in their place, above all descriptors that they are to get.
func (d *dozer) fresh() (doors []Door) {
	for _, door := range d.Doors {
		fd, err := unix.FcntlInt(uintptr(door.FD), unix.F_DUPFD_CLOEXEC, firstFD+len(d.Doors))
		unix.CloseOnExec(door.FD)
		if err == nil && there(door.Path) {
			door.FD = fd
			doors = append(doors, door)
		}
	}
	for _, fd := range []int{d.Page, d.Metrics, d.Alarm} {
		unix.CloseOnExec(fd)
	}
	return doors
}

// leave removes the sockets, at which nobody answers any more.
func (d *dozer) leave() {
	for _, door := range d.Doors {
		_ = unix.Unlink(door.Path)
	}
	for _, fd := range []int{d.Metrics, d.Alarm} {
		if path := pathOf(fd); path != "" {
			_ = unix.Unlink(path)
		}
	}
}
