package daemon

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/bus/pause"
)

func retriesIn(dir string, out *bytes.Buffer) *retries {
	return &retries{name: "gc", path: filepath.Join(dir, "metrics", "gc.starts"), out: out}
}

// Starts that fail wait longer and longer, with one line each, until one of them lasts.
func TestFailingStartsWait(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		start := func(err error) time.Duration {
			t.Helper()
			out.Reset()
			began := time.Now()
			r := retriesIn(dir, &out) // as a new process
			if !r.hold(t.Context()) {
				t.Fatal("it doesn't start")
			}
			waited := time.Since(began)
			if err != nil {
				r.ended(err)
			}
			return waited
		}
		broken := errors.New("the configuration\nis broken")
		for i, seconds := range []int{0, 0, 0, 1, 2, 4, 8, 16, 30, 30} {
			want := time.Duration(seconds) * time.Second
			if got := start(broken); got != want {
				t.Errorf("start %d waited %s, want %s", i, got, want)
			}
			said := "waits"
			if want == 0 && out.Len() > 0 || want > 0 && (strings.Count(out.String(), "\n") != 1 ||
				!strings.Contains(out.String(), said) || !strings.Contains(out.String(), "the configuration is broken")) {
				t.Errorf("start %d said %q", i, out.String())
			}
		}
		// One that is killed, and so says no reason, counts too.
		if got := start(nil); got != 30*time.Second {
			t.Errorf("the next start waited %s", got)
		}
		// One that lasts.
		r := retriesIn(dir, &out)
		r.hold(t.Context())
		stop := r.steadily()
		time.Sleep(pause.Steady + time.Second)
		stop()
		if got := start(nil); got != 0 {
			t.Errorf("after one that lasted the next start waited %s", got)
		}
		r.ended(nil)
		if _, err := os.Stat(r.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after an orderly end the file is there: %v", err)
		}
	})
}

// An administrator who has mended the configuration needn't wait: a stop forgets the failures.
func TestStopForgetsFailures(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := retriesIn(dir, &out)
		r.write(failed{Count: 8})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r.hold(ctx) {
			t.Error("it starts although it was stopped")
		}
		began := time.Now()
		if !r.hold(t.Context()) || time.Since(began) != 0 {
			t.Errorf("the next start waited %s", time.Since(began))
		}
	})
}

// A file that can't be read or written is no reason not to start.
func TestRetriesWithoutAFile(t *testing.T) {
	var out bytes.Buffer
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "metrics"), []byte("no directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := retriesIn(dir, &out)
	if !r.hold(t.Context()) || !strings.Contains(out.String(), "restarts are not slowed down") {
		t.Errorf("it said %q", out.String())
	}
	for _, text := range []string{"", "null", "{", `{"count": -5}`, `{"count": "x"}`} {
		r := retriesIn(t.TempDir(), &out)
		if err := os.MkdirAll(filepath.Dir(r.path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if !r.hold(t.Context()) || time.Since(began) > longestWait/2 {
			t.Errorf("%q: it waited %s", text, time.Since(began))
		}
	}
	if waitBefore(1<<40) != longestWait {
		t.Error("a large number waits something else")
	}
	var none *retries
	if !none.hold(t.Context()) {
		t.Error("nobody counts, and it doesn't start")
	}
	none.steadily()()
	none.ended(errors.New("x"))
	if retriesOf("gc", dir, &out) != nil {
		t.Error("systemd didn't start this test")
	}
	t.Setenv("SYSTEMD_EXEC_PID", "1")
	if retriesOf("gc", dir, &out) != nil {
		t.Error("systemd didn't start this test itself")
	}
}

// Other daemons write into the same directory. What they put there doesn't hold up a start.
func TestWhatOthersPutThereIsNotRead(t *testing.T) {
	many := []byte(`{"count":9,"reason":"mine"}`)
	for name, put := range map[string]func(path string) error{
		"a pipe":       func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"a link":       func(path string) error { return os.Symlink("/dev/zero", path) },
		"a directory":  func(path string) error { return os.Mkdir(path, 0o755) },
		"a large file": func(path string) error { return os.WriteFile(path, bytes.Repeat(many, 1<<16), 0o600) },
		"another's file": func(path string) error {
			return errors.Join(os.WriteFile(path, many, 0o644), os.Chown(path, 65534, 65534))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "another's file" && os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			var out bytes.Buffer
			r := retriesIn(t.TempDir(), &out)
			if err := errors.Join(os.Mkdir(filepath.Dir(r.path), 0o755), put(r.path)); err != nil {
				t.Fatal(err)
			}
			if got := r.read(); got != (failed{}) {
				t.Errorf("it has read %+v", got)
			}
			began := time.Now()
			if !r.hold(t.Context()) || strings.Contains(out.String(), "waits") {
				t.Errorf("it doesn't start at once, after %s: %s", time.Since(began), &out)
			}
		})
	}
}
