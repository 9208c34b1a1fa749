package logindtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// patience is for a busy machine.
const patience = time.Minute

// Contract checks what package logind relies on, on the bus at an address. confDir is where that logind reads files.
// powerOff begins a shutdown that is delayed; nil where the test must not, as the machine would go down.
func Contract(t *testing.T, address, confDir string, powerOff func() (cancel func())) {
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // nobody can act on a failure
	logind := conn.Object(login1, object)
	t.Run("a lock is a pipe that is held while it is open", func(t *testing.T) {
		before := locks(t, logind)
		lock := inhibit(t, logind)
		if now := locks(t, logind); now != before+1 {
			t.Errorf("%d locks after one was taken, %d before", now, before)
		}
		duplicate, err := unix.FcntlInt(lock.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		lock.Close()
		if now := locks(t, logind); now != before+1 {
			t.Errorf("%d locks while a duplicate is open, %d before", now, before)
		}
		if err := unix.Close(duplicate); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the lock's release", func() error {
			if now := locks(t, logind); now != before {
				return fmt.Errorf("%d locks, %d before", now, before)
			}
			return nil
		})
	})
	t.Run("the limit follows the files", func(t *testing.T) {
		was := limit(t, logind)
		file := filepath.Join(confDir, "99-kubelot-contract.conf")
		if err := os.MkdirAll(confDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, seconds := range []int{37, 41} {
			text := fmt.Sprintf("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=%d\n", seconds)
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			awaitLimit(t, conn, time.Duration(seconds)*time.Second)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		awaitLimit(t, conn, was)
	})
	t.Run("no lock is given during a shutdown", func(t *testing.T) {
		if powerOff == nil {
			t.Skip("the machine would go down")
		}
		lock := inhibit(t, logind)
		defer lock.Close()
		signals := make(chan *dbus.Signal, 4)
		conn.Signal(signals)
		err := conn.AddMatchSignal(dbus.WithMatchInterface(manager), dbus.WithMatchMember("PrepareForShutdown"))
		if err != nil {
			t.Fatal(err)
		}
		cancel := powerOff()
		expect(t, signals, true)
		var refused dbus.Error
		err = logind.Call(manager+".Inhibit", 0, "shutdown", "kubelet", "test", "delay").Err
		if !errors.As(err, &refused) || refused.Name != login1+".OperationInProgress" {
			t.Errorf("a second lock: %v", err)
		}
		cancel()
		expect(t, signals, false)
		inhibit(t, logind).Close()
	})
}

func expect(t *testing.T, signals <-chan *dbus.Signal, shuttingDown bool) {
	t.Helper()
	select {
	case s := <-signals:
		if len(s.Body) != 1 || s.Body[0] != shuttingDown {
			t.Errorf("PrepareForShutdown%v, want %v", s.Body, shuttingDown)
		}
	case <-time.After(patience):
		t.Fatal("nothing was announced")
	}
}

func inhibit(t *testing.T, logind dbus.BusObject) *os.File {
	t.Helper()
	var fd dbus.UnixFD
	err := logind.Call(manager+".Inhibit", 0, "shutdown", "kubelet", "Kubelet needs time to handle node shutdown",
		"delay").Store(&fd)
	if err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(fd), &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		t.Errorf("the lock has the mode %o, %v; want a pipe", stat.Mode, err)
	}
	return os.NewFile(uintptr(fd), "lock")
}

// locks is how many of the kubelet's delay locks there are.
func locks(t *testing.T, logind dbus.BusObject) int {
	t.Helper()
	var all []inhibitor
	if err := logind.Call(manager+".ListInhibitors", 0).Store(&all); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range all {
		if slices.Equal([]string{l.What, l.Who, l.Mode}, []string{"shutdown", "kubelet", "delay"}) {
			n++
		}
	}
	return n
}

func limit(t *testing.T, logind dbus.BusObject) time.Duration {
	t.Helper()
	v, err := logind.GetProperty(manager + ".InhibitDelayMaxUSec")
	if err != nil {
		t.Fatal(err)
	}
	micros, ok := v.Value().(uint64)
	if !ok {
		t.Fatalf("InhibitDelayMaxUSec is a %T", v.Value())
	}
	return time.Duration(micros) * time.Microsecond
}

// awaitLimit signals logind until it has the limit.
func awaitLimit(t *testing.T, conn *dbus.Conn, want time.Duration) {
	t.Helper()
	eventually(t, "the limit", func() error {
		err := conn.Object(systemd, "/org/freedesktop/systemd1").Call(systemd+".Manager.KillUnit", 0,
			"systemd-logind.service", "main", int32(unix.SIGHUP)).Err
		if err != nil {
			t.Fatal(err)
		}
		if now := limit(t, conn.Object(login1, object)); now != want {
			return fmt.Errorf("it is %s, want %s", now, want)
		}
		return nil
	})
}

func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
	}
	t.Fatalf("waited %s for %s: %v", patience, what, err)
}
