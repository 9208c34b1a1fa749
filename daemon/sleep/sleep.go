// Package sleep lets a daemon sleep that nothing on its node needs, and others wake it. Asleep it is the same process,
// which runs the small program of package doze (docs/adr/0034).
//
// # Owns
//
// The directory <run-dir>/wake with the alarm of each daemon that sleeps: a unix socket. Whoever connects to it wakes
// the daemon, and needs no answer.
//
// # Guarantees
//
//   - No client of the daemon loses a connection, or a request. One that comes while it sleeps waits until it is awake.
//   - Who has given the daemon work over the bus and then woken it is not overheard: the alarm is there for Drowsy
//     before the daemon sleeps, so that it has the work by then or is woken.
//   - A daemon that can't sleep stays awake, and says why once.
package sleep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/doze"
	"kubelot.dev/daemon/fdstore"
)

// Program is the name of the executable that waits.
const Program = "kubelot-doze"

// Drowsy is how long the alarm is there before the daemon sleeps.
const Drowsy = 10 * time.Second

// ErrLater is what Sleep returns where it may be tried later: a client is connected, or was lately, or the bus doesn't
// take the word that the daemon sleeps.
var ErrLater = errors.New("the daemon can't sleep now")

// Chassis is what the rest of the process does around the sleep.
type Chassis struct {
	// Leave says on the bus and to the supervisor that the daemon sleeps, and returns its metrics and the socket on which
	// they are asked for.
	Leave func(why string) (page []byte, metrics *net.UnixListener, err error)
	// Return takes that back.
	Return func()
}

// Sleeper has a daemon sleep. Its methods are called from one goroutine. A nil Sleeper is for a daemon that has no
// process to itself: it never sleeps.
type Sleeper struct {
	runDir, daemon string
	program        string
	store          *fdstore.Store
	chassis        Chassis
	log            *slog.Logger
	doors          []*Door
	alarm          *net.UnixListener
	lately         time.Duration
	// never is why the daemon can't sleep.
	never error
}

// New makes the sleeper of this process.
func New(runDir, daemon string, store *fdstore.Store, chassis Chassis, log *slog.Logger) *Sleeper {
	return &Sleeper{runDir: runDir, daemon: daemon, store: store, chassis: chassis, log: log, lately: lately}
}

// program is the path of kubelot-doze, which is in the directory of this executable.
func program() (string, error) {
	if !filepath.IsAbs(os.Args[0]) {
		return "", errors.New("it was started by a path that isn't absolute")
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), Program)
	_, err = os.Stat(path)
	return path, err
}

// Door makes a door for the socket at a path. purpose names it among the daemon's. Doors are made before the first
// Sleep.
func (s *Sleeper) Door(purpose, path string) *Door {
	if s == nil {
		return nil
	}
	d := &Door{purpose: purpose, path: path, lately: s.lately}
	for _, f := range s.store.Inherited(purpose) {
		l, err := f.Listener()
		if err != nil || d.inherited != nil {
			s.log.Warn("can't take over a socket from before the sleep, making another one", "socket", path, "error", err)
			continue
		}
		// A socket that was moved to its place is its owner's to remove.
		l.SetUnlinkOnClose(l.Addr().String() == path)
		d.inherited = l
	}
	s.doors = append(s.doors, d)
	return d
}

// Able reports whether the daemon can sleep at all.
func (s *Sleeper) Able() bool { return s != nil && s.never == nil }

// Set makes the alarm, if it isn't there: from now on the daemon can be woken, although it is awake.
func (s *Sleeper) Set(ctx context.Context) error {
	if s.alarm != nil {
		return nil
	}
	var err error
	if s.program, err = program(); err != nil {
		return s.give(fmt.Errorf("program that waits in its place: %w", err))
	}
	path := Alarm(s.runDir, s.daemon)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return s.give(fmt.Errorf("directory of the alarm: %w", err))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.give(fmt.Errorf("alarm of an earlier run: %w", err))
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return s.give(fmt.Errorf("alarm: %w", err))
	}
	s.alarm = l.(*net.UnixListener)
	// The directory's group are all daemons.
	if err := os.Chmod(path, 0o660); err != nil {
		return s.give(fmt.Errorf("alarm: %w", err))
	}
	return nil
}

// Unset takes the alarm away: the daemon stays awake.
func (s *Sleeper) Unset() {
	if s != nil && s.alarm != nil {
		// It goes with its file. That it was there hurts nobody.
		_ = s.alarm.Close()
		s.alarm = nil
	}
}

// give gives up: the daemon can't sleep.
func (s *Sleeper) give(err error) error {
	s.Unset()
	s.never = err
	s.log.Warn("the daemon can't sleep and stays awake, which costs some MiB", "error", err)
	return err
}

// Sleep makes the process the one that waits. It returns only where that fails: with ErrLater it may be tried later.
func (s *Sleeper) Sleep(why string) error {
	for _, d := range s.doors {
		unused, thaw := d.shut()
		defer thaw()
		if !unused {
			return ErrLater
		}
	}
	page, metrics, err := s.chassis.Leave(why)
	if err != nil {
		s.chassis.Return()
		return fmt.Errorf("%w: %w", ErrLater, err)
	}
	err = s.exec(page, metrics)
	s.chassis.Return()
	return s.give(err)
}

func (s *Sleeper) exec(page []byte, metrics *net.UnixListener) error {
	var plan doze.Plan
	// The duplicates are the next program's. Where that doesn't start they are closed.
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	hand := func(f *os.File, err error) (int, error) {
		if err != nil {
			return 0, err
		}
		files = append(files, f)
		return inheritable(f)
	}
	var errs [3]error
	plan.Page, errs[0] = hand(inMemory(page))
	plan.Metrics, errs[1] = hand(metrics.File())
	plan.Alarm, errs[2] = hand(s.alarm.File())
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for _, d := range s.doors {
		fd, err := hand(d.file())
		if err != nil {
			return err
		}
		if strings.ContainsAny(d.path, "\n") {
			return fmt.Errorf("a socket's path has a line break: %q", d.path)
		}
		plan.Doors = append(plan.Doors, doze.Door{FD: fd, Name: s.store.Name(d.purpose), Path: d.path})
	}
	err := syscall.Exec(s.program, os.Args, append(os.Environ(), doze.Variable+"="+plan.String()))
	return &os.PathError{Op: "exec", Path: s.program, Err: err}
}

// inheritable lets the next program have the file, and returns its number there.
func inheritable(f *os.File) (number int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		number = int(fd)
		_, failed = unix.FcntlInt(fd, unix.F_SETFD, 0)
	})
	return number, errors.Join(err, failed)
}

// inMemory is a file with the content that is nowhere but in memory.
func inMemory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "page")
	if _, err := f.Write(content); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
