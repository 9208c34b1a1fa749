package sleep

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	// dirName is the directory of the alarms below the run directory.
	dirName = "wake"
	suffix  = ".sock"
)

// Alarm is the path of the socket that wakes a daemon.
func Alarm(runDir, daemon string) string { return filepath.Join(runDir, dirName, daemon+suffix) }

// Wake wakes a daemon, if it sleeps. asleep reports whether it did, as far as that can be told. It doesn't wait for
// the daemon.
func Wake(runDir, daemon string) (asleep bool, err error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: Alarm(runDir, daemon)})
	switch {
	case err == nil:
		return true, c.Close()
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return false, nil // it is awake, or gone
	case errors.Is(err, syscall.EAGAIN):
		return true, nil // others have called it, and it is being woken
	}
	return false, err
}

// WakeAll wakes all daemons that sleep.
func WakeAll(runDir string) error {
	// The pattern is valid but for the directory's own name.
	paths, err := filepath.Glob(filepath.Join(runDir, dirName, "*"+suffix))
	for _, path := range paths {
		_, one := Wake(runDir, strings.TrimSuffix(filepath.Base(path), suffix))
		err = errors.Join(err, one)
	}
	return err
}

// Waker returns a function that wakes a daemon, and logs why it can't.
func Waker(runDir, daemon string, log *slog.Logger) func() {
	return func() {
		if _, err := Wake(runDir, daemon); err != nil {
			log.Warn("a daemon that may sleep can't be woken", "wakes", daemon, "error", err)
		}
	}
}
