package up

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxMessage is what sd_notify accepts as the size of a message.
	maxMessage = 4096
	// maxRights is how many file descriptors may come with one message.
	maxRights = maxStored
)

// notify takes the place of systemd's NOTIFY_SOCKET for one child. It keeps the file descriptors that the child stores
// (FDSTORE, FDSTOREREMOVE), and ignores what the child says of its state.
type notify struct {
	path string
	conn *net.UnixConn
	// complain is called with the reason when something that the child asks for can't be done.
	complain func(error)
	store    store
}

// listen makes the socket of the named child in the directory.
func listen(dir, name string, complain func(error)) (*notify, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "notify-"+name)
	// An earlier crew that was killed has left its own.
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	n := &notify{path: path, conn: conn, complain: complain}
	if err := os.Chmod(path, 0o600); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// close closes the socket and all that is kept.
func (n *notify) close() {
	if n == nil {
		return
	}
	n.store.close()
	err := n.conn.Close()
	if removeErr := os.Remove(n.path); !os.IsNotExist(removeErr) {
		err = errors.Join(err, removeErr)
	}
	if err != nil {
		n.complain(err)
	}
}

// supervised are the variables by which a supervisor speaks to its child: those that kubelot up itself was given are
// not for its children.
var supervised = []string{
	"NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID",
	"WATCHDOG_USEC", "WATCHDOG_PID",
}

// inheritance is the environment and the files of the child's next process.
func (n *notify) inheritance() (env []string, files []*os.File) {
	env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(supervised, name)
	})
	if n == nil {
		return env, nil
	}
	files, listen := n.store.handOver()
	return append(append(env, "NOTIFY_SOCKET="+n.path), listen...), files
}

// serve takes messages until the returned function is called. That function also takes all messages that were sent
// before, so that the last messages of a killed child count.
func (n *notify) serve() (stop func()) {
	if n == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		for err == nil {
			err = n.receive(0)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			n.complain(fmt.Errorf("can't receive the daemon's messages any more: %w", err))
		}
	}()
	return func() {
		// A deadline that has passed ends the goroutine's read; the rest is read without waiting.
		n.deadline(time.Now())
		<-done
		n.deadline(time.Time{})
		for n.receive(unix.MSG_DONTWAIT) == nil {
			continue
		}
	}
}

func (n *notify) deadline(t time.Time) {
	if err := n.conn.SetReadDeadline(t); err != nil {
		n.complain(err)
	}
}

// receive takes one message in. With MSG_DONTWAIT it fails where there is none.
func (n *notify) receive(flags int) error {
	raw, err := n.conn.SyscallConn()
	if err != nil {
		return err
	}
	data, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxRights))
	var size, rights int
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		size, rights, _, _, readErr = unix.Recvmsg(int(fd), data, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		return flags&unix.MSG_DONTWAIT != 0 || !errors.Is(readErr, unix.EAGAIN)
	})
	if err := errors.Join(err, readErr); err != nil {
		return err
	}
	files, err := received(oob[:rights])
	if err == nil {
		err = n.store.take(string(data[:size]), files)
	}
	if err != nil {
		n.complain(err)
	}
	return nil
}

// received are the files that came with a message.
func received(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("read what came with a message: %w", err)
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // credentials, or whatever else isn't a file
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "stored"))
		}
	}
	return files, nil
}
