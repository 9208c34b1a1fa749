package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func infoOf(t *testing.T, path string) fs.FileInfo {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func modeOf(t *testing.T, path string) fs.FileMode { return infoOf(t, path).Mode() }

func TestModesDoNotDependOnTheUmask(t *testing.T) {
	path := socketPath(t)
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	s, _, err := listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, want := modeOf(t, filepath.Dir(path)), fs.ModeDir|0o750; got != want {
		t.Errorf("the directory has mode %v, want %v", got, want)
	}
	if got, want := modeOf(t, path), fs.ModeSocket|0o755; got != want {
		t.Errorf("the socket has mode %v, want %v", got, want)
	}
}

func TestADirectoryKeepsItsMode(t *testing.T) {
	path := socketPath(t)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	s, _, err := listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, want := modeOf(t, filepath.Dir(path)), fs.ModeDir|0o700; got != want {
		t.Errorf("the directory has mode %v, want %v", got, want)
	}
}

// abandon leaves a socket on which nobody listens.
func abandon(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestASocketThatWasLeftIsReplaced(t *testing.T) {
	path := socketPath(t)
	abandon(t, path)
	abandon(t, path+suffix)
	r := run(t, path)
	r.up()
	if _, err := os.Lstat(path + suffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unfinished socket is still there: %v", err)
	}
	r.down()
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("at the end there is %v (%v), want nothing", left, err)
	}
}

func TestWhatIsNoSocketIsLeftAlone(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"isn't a socket": func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"is a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		for _, at := range []string{"", suffix} {
			t.Run(name+at, func(t *testing.T) {
				path := socketPath(t)
				if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o750), put(path+at)); err != nil {
					t.Fatal(err)
				}
				want := modeOf(t, path+at)
				e := &Endpoint{Path: path}
				err := e.Run(t.Context())
				said := fmt.Sprint(err)
				if err == nil || !strings.Contains(said, path+at+" "+name) || !strings.Contains(said, "remove it") {
					t.Errorf("the error is %v, want that %s %s, and what to do", err, path+at, name)
				}
				if got := modeOf(t, path+at); got != want {
					t.Errorf("there is now %v, want %v", got, want)
				}
			})
		}
	}
}

func TestAPathMayBeTooLong(t *testing.T) {
	dir := filepath.Dir(socketPath(t))
	longest := dir + "/" + strings.Repeat("a", maxPath-len(suffix)-len(dir)-1)
	s, _, err := listen(t.Context(), longest)
	if err != nil {
		t.Fatalf("the longest path: %v", err)
	}
	defer s.Close()
	if _, _, err := listen(t.Context(), longest+"a"); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("one character more: %v, want what to do", err)
	}
}

func TestTheEndSparesAnotherProcesssSocket(t *testing.T) {
	path := socketPath(t)
	first := run(t, path)
	first.up()
	old := infoOf(t, path)
	second := run(t, path)
	waitForOther(t, path, old)
	first.down()
	second.up() // by a new connection, so that it must find the socket
	second.down()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// waitForOther waits until the path is another file. It is never without one.
func waitForOther(t *testing.T, path string, old fs.FileInfo) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for os.SameFile(infoOf(t, path), old) {
		if ctx.Err() != nil {
			t.Fatal("the socket wasn't replaced")
		}
		time.Sleep(time.Millisecond)
	}
}
