package up

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxStored is how many file descriptors are kept for one child; the units say the same (FileDescriptorStoreMax).
const maxStored = 16

// store is a small version of systemd's file descriptor store. It holds the file descriptors of a child for the child's
// next process. Several may have the same name.
type store struct{ kept []kept }

type kept struct {
	name string
	file *os.File
	// always is true for what is kept also while its other end is closed (FDPOLL=0).
	always bool
}

// take does what one message of sd_notify(3) asks for. It owns the files; what it doesn't keep is closed.
func (s *store) take(message string, files []*os.File) error {
	fields := map[string]string{}
	for line := range strings.SplitSeq(message, "\n") {
		if key, value, found := strings.Cut(line, "="); found {
			fields[key] = value
		}
	}
	name := "stored" // what systemd calls what has no name
	if n, given := fields["FDNAME"]; given {
		name = n
	}
	switch {
	case fields["FDSTOREREMOVE"] == "1":
		s.remove(func(k kept) bool { return k.name == name })
	case fields["FDSTORE"] == "1":
		return s.add(name, files, fields["FDPOLL"] == "0")
	}
	closeAll(files)
	return nil
}

func (s *store) add(name string, files []*os.File, always bool) error {
	s.removeHungUp()
	invalid := func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }
	if name == "" || len(name) > 255 || strings.ContainsFunc(name, invalid) {
		closeAll(files)
		return fmt.Errorf("file descriptors are not kept: %q can't be the name of one", name)
	}
	for i, f := range files {
		if len(s.kept) == maxStored {
			closeAll(files[i:])
			return fmt.Errorf("file descriptor %s is not kept: there are %d already", name, maxStored)
		}
		s.kept = append(s.kept, kept{name, f, always})
	}
	return nil
}

func (s *store) remove(which func(kept) bool) {
	s.kept = slices.DeleteFunc(s.kept, func(k kept) bool {
		gone := which(k)
		if gone {
			k.file.Close()
		}
		return gone
	})
}

// removeHungUp removes connections whose other end is closed: their owner may be dead and not remove them.
func (s *store) removeHungUp() {
	s.remove(func(k kept) bool {
		if k.always {
			return false
		}
		raw, err := k.file.SyscallConn()
		if err != nil {
			return true
		}
		fds := []unix.PollFd{{}}
		err = raw.Control(func(fd uintptr) {
			fds[0].Fd = int32(fd)
			_, _ = unix.Poll(fds, 0) // then it stays until the next time
		})
		return err != nil || fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
}

// handOver returns what the next process is started with: its file descriptors from 3 on, and the variables that
// describe them. LISTEN_PID is left out, because the ID of the process isn't known before it runs.
func (s *store) handOver() (files []*os.File, env []string) {
	s.removeHungUp()
	if len(s.kept) == 0 {
		return nil, nil
	}
	names := make([]string, 0, len(s.kept))
	for _, k := range s.kept {
		files, names = append(files, k.file), append(names, k.name)
	}
	return files, []string{"LISTEN_FDS=" + strconv.Itoa(len(files)), "LISTEN_FDNAMES=" + strings.Join(names, ":")}
}

func (s *store) close() { s.remove(func(kept) bool { return true }) }

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
