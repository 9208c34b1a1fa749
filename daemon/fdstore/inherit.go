package fdstore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// firstFD is where inherited file descriptors begin (SD_LISTEN_FDS_START).
const firstFD = 3

// File is what an earlier process stored and the supervisor has handed over, or what Keep has stored.
type File struct {
	// Name is the name under which it was stored.
	Name  string
	store *Store
	file  *os.File
}

// FromEnvironment makes the Store of this process. It takes the file descriptors that the environment names, and
// removes the variables, so that no child process takes the descriptors for its own. If something is wrong, it logs
// one warning.
func FromEnvironment(log *slog.Logger) *Store {
	s := &Store{log: log, socket: os.Getenv("NOTIFY_SOCKET")}
	fds, names := os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	pid := os.Getenv("LISTEN_PID")
	for _, name := range []string{"LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID"} {
		if err := os.Unsetenv(name); err != nil {
			log.Warn("can't unset an environment variable", "name", name, "error", err)
		}
	}
	// kubelot up can't know the process's ID when it writes the environment, so it leaves it out.
	if fds == "" || (pid != "" && pid != strconv.Itoa(os.Getpid())) {
		return s
	}
	if err := s.inherit(fds, names); err != nil {
		log.Warn("can't take over the connections of an earlier process from the supervisor; its calls on them may be "+
			"cancelled",
			"LISTEN_FDS", fds, "LISTEN_FDNAMES", names, "error", err)
	}
	return s
}

func (s *Store) inherit(fds, names string) error {
	list, err := parseNames(fds, names)
	if err != nil {
		return err
	}
	var errs []error
	for i, name := range list {
		fd := firstFD + i
		if err := check(fd, name); err != nil {
			errs = append(errs, fmt.Errorf("file descriptor %d (%q): %w", fd, name, err))
			continue
		}
		unix.CloseOnExec(fd)
		s.inherited = append(s.inherited, &File{Name: name, store: s, file: os.NewFile(uintptr(fd), name)})
	}
	slices.SortStableFunc(s.inherited, func(a, b *File) int {
		first, _ := stored(a.Name)
		second, _ := stored(b.Name)
		return cmp.Compare(first, second)
	})
	return errors.Join(errs...)
}

// parseNames reads LISTEN_FDS and LISTEN_FDNAMES: the names of the file descriptors from firstFD on.
func parseNames(fds, names string) ([]string, error) {
	count, err := strconv.Atoi(fds)
	if err != nil || count < 0 {
		return nil, fmt.Errorf("LISTEN_FDS is %q, want a number", fds)
	}
	list := strings.Split(names, ":")
	if count != len(list) {
		return nil, fmt.Errorf("LISTEN_FDNAMES has %d names for %d file descriptors", len(list), count)
	}
	return list, nil
}

// check returns an error if the file descriptor isn't one that was stored: a unix socket or a pipe. To close another
// one could end the process.
func check(fd int, name string) error {
	if _, ok := stored(name); !ok {
		return errors.New("its name isn't one that kubelot gives")
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("it isn't open: %w", err)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFIFO {
		return nil
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("it is neither a socket nor a pipe: %w", err)
	}
	if domain != unix.AF_UNIX {
		return errors.New("it isn't a unix socket")
	}
	return nil
}

// Inherited returns the files that earlier processes stored for a purpose, and those that Keep stored, oldest first.
// Files that were dropped are left out.
func (s *Store) Inherited(purpose string) []*File {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.inherited), func(f *File) bool { return purposeOf(f.Name) != purpose })
}

// Keep stores a pipe, so that it stays open when this process ends. It owns the file. The supervisor keeps the pipe
// until it is dropped, even if nobody has the other end open. Without a supervisor only this process keeps it. If the
// daemon runs again in this process, it finds the pipe by Inherited.
func (s *Store) Keep(purpose string, file *os.File) *File {
	if s == nil {
		return &File{file: file}
	}
	f := &File{Name: s.Name(purpose), store: s, file: file}
	s.mu.Lock()
	s.inherited = append(s.inherited, f)
	s.mu.Unlock()
	if s.socket == "" {
		return f
	}
	raw, err := file.SyscallConn()
	if err == nil {
		var notifyErr error
		err = raw.Control(func(fd uintptr) {
			notifyErr = s.notify("FDSTORE=1\nFDPOLL=0\nFDNAME="+f.Name, int(fd))
		})
		err = errors.Join(err, notifyErr)
	}
	if err != nil {
		s.log.Warn("the supervisor can't be given a file to keep: it is closed if this process is killed", "name", f.Name,
			"error", err)
	}
	return f
}

// HungUp reports whether the other end is closed. Then no call is under way on a connection, and nobody waits for a
// pipe.
func (f *File) HungUp() bool {
	raw, err := f.file.SyscallConn()
	if err != nil {
		return true
	}
	fds := []unix.PollFd{{Events: unix.POLLRDHUP}}
	var pollErr error
	err = raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd)
		_, pollErr = unix.Poll(fds, 0)
	})
	return err == nil && pollErr == nil && fds[0].Revents&(unix.POLLHUP|unix.POLLRDHUP|unix.POLLERR) != 0
}

// Listener makes the file a listener, which owns it. It is for a file that another program has handed over and the
// supervisor doesn't have.
func (f *File) Listener() (*net.UnixListener, error) {
	f.forget()
	defer f.file.Close()
	l, err := net.FileListener(f.file)
	if err != nil {
		return nil, err
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T isn't a unix socket", l), l.Close())
	}
	return u, nil
}

// Drop closes the file here and at the supervisor. It may be called once.
func (f *File) Drop() {
	defer f.file.Close()
	if f.store == nil {
		return
	}
	f.forget()
	if f.store.socket != "" {
		f.store.remove(f.Name)
	}
}

// forget takes the file out of those that are inherited.
func (f *File) forget() {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.store.inherited = slices.DeleteFunc(f.store.inherited, func(o *File) bool { return o == f })
}
