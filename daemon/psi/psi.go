// Package psi waits for the kernel's pressure-stall information (PSI) about memory.
//
// # Guarantees
//
//   - Wait returns when its time is over. If the kernel supports it, Wait returns at once when tasks stall for memory.
package psi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// stall is what the kernel is asked to wake for: tasks that stall for memory for 150 ms of 2 s, the shortest window
// that needs no privilege (Documentation/accounting/psi.rst).
const stall = "some 150000 2000000"

// Alarm waits for time to pass or for memory to get short, whichever comes first.
type Alarm struct {
	pressure *os.File // nil where the kernel can't tell
	stop     [2]*os.File
}

// NewAlarm opens the kernel's pressure-stall information below proc. If there is none, it returns an alarm that only
// waits for time to pass, and an error that says why. If it returns no alarm, the error says why there can't be one.
func NewAlarm(proc string) (*Alarm, error) {
	a := &Alarm{}
	var err error
	if a.stop[0], a.stop[1], err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	path := filepath.Join(proc, "pressure", "memory")
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return a, fmt.Errorf("open %s: %w", path, err)
	}
	if _, err := unix.Write(fd, append([]byte(stall), 0)); err != nil {
		return a, errors.Join(fmt.Errorf("set a trigger in %s: %w", path, err), unix.Close(fd))
	}
	a.pressure = os.NewFile(uintptr(fd), path)
	return a, nil
}

// Wait waits for d, for the kernel's alarm (early), or for ctx to end.
func (a *Alarm) Wait(ctx context.Context, d time.Duration) (early bool) {
	defer context.AfterFunc(ctx, func() { _, _ = a.stop[1].Write([]byte{0}) })()
	files := []unix.PollFd{{Fd: int32(a.stop[0].Fd()), Events: unix.POLLIN}}
	if a.pressure != nil {
		files = append(files, unix.PollFd{Fd: int32(a.pressure.Fd()), Events: unix.POLLPRI})
	}
	for deadline := time.Now().Add(d); ctx.Err() == nil; {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		n, err := unix.Poll(files, int(left/time.Millisecond)+1)
		switch {
		case errors.Is(err, unix.EINTR) || n == 0:
		case err != nil || files[0].Revents != 0:
			return false
		case files[1].Revents&unix.POLLPRI != 0:
			return true
		default:
			// The kernel has given up on the trigger.
			_ = a.pressure.Close()
			a.pressure, files = nil, files[:1]
		}
	}
	return false
}

// Close closes what NewAlarm opened. Nobody may be waiting.
func (a *Alarm) Close() error {
	errs := []error{a.stop[0].Close(), a.stop[1].Close()}
	if a.pressure != nil {
		errs = append(errs, a.pressure.Close())
	}
	return errors.Join(errs...)
}
