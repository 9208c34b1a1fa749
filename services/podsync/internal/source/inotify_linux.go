package source

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// note is one thing that the kernel reports about the watched directory.
type note struct {
	// path is the file concerned; empty when the directory itself is.
	path string
	mask uint32
}

// gone reports whether the watch has ended.
func (n note) gone() bool {
	return n.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED|unix.IN_UNMOUNT) != 0
}

// lost reports whether notes were dropped.
func (n note) lost() bool { return n.mask&unix.IN_Q_OVERFLOW != 0 }

// apply updates what is known of writers.
func (n note) apply(a *activity) {
	switch {
	case n.lost():
		clear(a.writing)
	case n.mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0:
		delete(a.writing, n.path)
		a.closed[n.path] = true
	case n.mask&unix.IN_MODIFY != 0:
		a.writing[n.path] = true
		delete(a.closed, n.path)
	case n.mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		delete(a.writing, n.path)
	}
}

const watchMask = unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE |
	unix.IN_CREATE | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// watcher watches one directory. It is written by hand because fsnotify doesn't report that a writer has closed a file,
// and k8s.io/utils/inotify drops overflows (docs/adr/0024).
type watcher struct {
	notes <-chan note
	f     *os.File
	done  chan struct{}
}

// watch begins to watch a directory; the caller must close the watcher.
func watch(dir string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w: raise fs.inotify.max_user_instances", err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, watchMask); err != nil {
		unix.Close(fd) //nolint:errcheck // nothing was written
		return nil, fmt.Errorf("inotify: watch %s: %w", dir, err)
	}
	notes := make(chan note, 64)
	w := &watcher{notes: notes, f: os.NewFile(uintptr(fd), "inotify"), done: make(chan struct{})}
	go func() {
		defer close(notes)
		w.read(dir, notes)
	}()
	return w, nil
}

// close ends the watch and waits for its goroutine.
func (w *watcher) close() {
	close(w.done)
	w.f.Close()
	for range w.notes {
	}
}

func (w *watcher) read(dir string, notes chan<- note) {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.f.Read(buf)
		if err != nil {
			return
		}
		for _, one := range parseNotes(dir, buf[:n]) {
			select {
			case notes <- one:
			case <-w.done:
				return
			}
		}
	}
}

// parseNotes reads struct inotify_event (inotify(7)).
func parseNotes(dir string, b []byte) []note {
	var notes []note
	for len(b) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(b[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		if size > len(b) {
			break
		}
		n := note{mask: mask}
		if name := bytes.TrimRight(b[unix.SizeofInotifyEvent:size], "\x00"); len(name) > 0 {
			n.path = filepath.Join(dir, string(name))
		}
		notes = append(notes, n)
		b = b[size:]
	}
	return notes
}
