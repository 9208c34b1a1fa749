package fdstore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// firstFD is where inherited file descriptors begin (SD_LISTEN_FDS_START).
const firstFD = 3

// File is what an earlier process stored and the supervisor has handed over.
type File struct {
	// Name is the one it was stored under.
	Name  string
	store *Store
	file  *os.File
}

// FromEnvironment makes the Store of this process. It takes the file descriptors that the environment tells of, and
// the variables out of it, so that no child process takes them for its own. What is wrong with them is one warning.
func FromEnvironment(log *slog.Logger) *Store {
	s := &Store{log: log, socket: os.Getenv("NOTIFY_SOCKET")}
	fds, names := os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	pid := os.Getenv("LISTEN_PID")
	for _, name := range []string{"LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID"} {
		if err := os.Unsetenv(name); err != nil {
			log.Warn("a variable can't be taken out of the environment", "name", name, "error", err)
		}
	}
	// kubelot up can't know the process's ID when it writes the environment, so it leaves it out.
	if fds == "" || (pid != "" && pid != strconv.Itoa(os.Getpid())) {
		return s
	}
	if err := s.inherit(fds, names); err != nil {
		log.Warn("the connections of an earlier process can't be taken over from the supervisor; what it asked for on them may be broken off",
			"LISTEN_FDS", fds, "LISTEN_FDNAMES", names, "error", err)
	}
	return s
}

func (s *Store) inherit(fds, names string) error {
	count, err := strconv.Atoi(fds)
	if err != nil || count < 0 {
		return fmt.Errorf("LISTEN_FDS is %q, want a number", fds)
	}
	list := strings.Split(names, ":")
	if count != len(list) {
		return fmt.Errorf("LISTEN_FDNAMES has %d names for %d file descriptors", len(list), count)
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

// check keeps the process from taking for its inheritance what isn't: to close that could end it.
func check(fd int, name string) error {
	if _, ok := stored(name); !ok {
		return errors.New("its name isn't one that kubelot gives")
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("it isn't an open socket: %w", err)
	}
	if domain != unix.AF_UNIX {
		return errors.New("it isn't a unix socket")
	}
	return nil
}

// Inherited is what earlier processes stored and nobody has dropped, oldest first.
func (s *Store) Inherited() []*File {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.inherited)
}

// HungUp tells whether the connection's other end is closed, so that nothing can be under way on it.
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

// Drop closes the file here and at the supervisor. It may be called once.
func (f *File) Drop() {
	f.store.mu.Lock()
	f.store.inherited = slices.DeleteFunc(f.store.inherited, func(o *File) bool { return o == f })
	f.store.mu.Unlock()
	f.store.remove(f.Name)
	f.file.Close()
}
