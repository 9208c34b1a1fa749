package cgroup

import (
	"bytes"
	"errors"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// maxFile bounds what is read of one file: memory.stat of version 2 has some 2 KiB, io.stat a line for each device.
const maxFile = 1 << 20

// files reads many small files with one buffer.
type files struct{ buf []byte }

// read is the file's content, valid until the next read; nil where it can't be read. Most files are missing for a good
// reason, such as a controller that is off, so that the absence of the part is all there is to say.
func (f *files) read(dir, name string) []byte {
	fd, err := open(path.Join(dir, name))
	if err != nil {
		return nil
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	n := 0
	for {
		if n == len(f.buf) {
			if n >= maxFile {
				return nil
			}
			f.buf = append(f.buf, make([]byte, len(f.buf))...)
		}
		got, err := unix.Read(fd, f.buf[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil
		case got == 0:
			return f.buf[:n]
		default:
			n += got
		}
	}
}

func open(file string) (int, error) {
	for {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// number is the number that the file holds, and fallback where there is none.
func (f *files) number(dir, name string, fallback uint64) uint64 {
	if n, ok := number(f.read(dir, name)); ok {
		return n
	}
	return fallback
}

// lines counts the file's lines, however many there are: a fork bomb has more processes than maxFile has room for.
func (f *files) lines(dir, name string) (n uint64) {
	fd, err := open(path.Join(dir, name))
	if err != nil {
		return 0
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	for {
		got, err := unix.Read(fd, f.buf)
		if got <= 0 && !errors.Is(err, unix.EINTR) {
			return n
		}
		n += uint64(bytes.Count(f.buf[:max(got, 0)], []byte{'\n'}))
	}
}

// created is when a cgroup was made, as far as its files tell: the times of all of them move, so that the oldest is the
// nearest.
func created(dir string) (time.Time, error) {
	var s unix.Stat_t
	if err := unix.Stat(dir, &s); errors.Is(err, unix.ENOENT) {
		return time.Time{}, ErrGone
	} else if err != nil {
		return time.Time{}, err
	}
	at := time.Unix(s.Mtim.Unix())
	for _, name := range []string{"cgroup.events", "cgroup.clone_children"} {
		if unix.Stat(path.Join(dir, name), &s) == nil {
			if made := time.Unix(s.Mtim.Unix()); made.Before(at) {
				at = made
			}
		}
	}
	return at, nil
}
