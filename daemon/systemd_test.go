package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

// systemdSocket stands for systemd: it returns what a daemon notifies, in order.
func systemdSocket(t *testing.T) func() string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 4096)
		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(buffer[:n]), "\n", "|")
	}
}

func expect(t *testing.T, next func() string, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := next(); got != w {
			t.Errorf("systemd was told %q, want %q", got, w)
		}
	}
}

// A message can't add fields of its own to what the supervisor is told.
func TestAMessageIsNoFieldForSystemd(t *testing.T) {
	next := systemdSocket(t)
	u := unit{log: slog.New(slog.DiscardHandler)}
	u.state(topic.Healthy, "")
	u.state(topic.Degraded, "the runtime says: no\nMAINPID=1\r\nWATCHDOG_USEC=1\x00\tFDSTOREREMOVE=1")
	u.state(topic.Degraded, "ends with a line\n")
	r := newRoster(func(message string) { notify(u.log, message) }, []string{"gc"})
	r.members[0].state(topic.Degraded, "no\nERRNO=1\rBUSERROR=x")
	expect(t, next, "READY=1|STATUS=healthy",
		"STATUS=degraded: the runtime says: no MAINPID=1  WATCHDOG_USEC=1  FDSTOREREMOVE=1",
		"STATUS=degraded: ends with a line ", "READY=1|STATUS=gc degraded: no ERRNO=1 BUSERROR=x")
}

func TestSystemdIsToldStartHealthAndStop(t *testing.T) {
	next := systemdSocket(t)
	env, conn := testEnv(&recorder{})
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	spec := Spec{Name: "test", Run: func(ctx context.Context, env Env) error {
		expect(t, next, "READY=1|STATUS=healthy")
		env.Health.Set(topic.Degraded, "no API server")
		expect(t, next, "STATUS=degraded: no API server")
		cancel()
		expect(t, next, "STOPPING=1")
		return ctx.Err()
	}}
	if err := RunWith(ctx, spec, env); err == nil {
		t.Error("the daemon's error got lost")
	}
	expect(t, next, "STATUS=stopped")
}

func TestWatchdogIsFed(t *testing.T) {
	next := systemdSocket(t)
	// Half of it passes before the first beat, in which the start is told.
	t.Setenv("WATCHDOG_USEC", "1000000")
	env, conn := testEnv(&recorder{})
	defer conn.Close()
	spec := Spec{Name: "test", Run: func(context.Context, Env) error {
		expect(t, next, "READY=1|STATUS=healthy", "WATCHDOG=1", "WATCHDOG=1")
		return nil
	}}
	if err := RunWith(t.Context(), spec, env); err != nil {
		t.Fatal(err)
	}
}

// The others start after the bus, so it is ready only when it says so.
func TestADaemonWithoutBusIsReadyWhenItSaysSo(t *testing.T) {
	next := systemdSocket(t)
	spec := Spec{Name: "bus", WithoutBus: true, Run: func(_ context.Context, env Env) error {
		env.Events.Record(topic.Event{}) // goes nowhere, and that is fine
		env.Health.Set(topic.Healthy, "")
		return nil
	}}
	env := NewEnv(spec, &config.Config{}, nil, slog.New(slog.DiscardHandler))
	if err := RunWith(t.Context(), spec, env); err != nil {
		t.Fatal(err)
	}
	expect(t, next, "READY=1|STATUS=healthy", "STATUS=stopped")
}

// The others start once the bus is ready, and one that has failed to start never is.
func TestADaemonThatFailsToStartIsNotReady(t *testing.T) {
	next := systemdSocket(t)
	failure := errors.New("another kubelot-bus uses the store")
	spec := Spec{Name: "bus", WithoutBus: true, Run: func(context.Context, Env) error { return failure }}
	env := NewEnv(spec, &config.Config{}, nil, slog.New(slog.DiscardHandler))
	if err := RunWith(t.Context(), spec, env); !errors.Is(err, failure) {
		t.Errorf("the daemon ended with %v", err)
	}
	expect(t, next, "STATUS=stopped: another kubelot-bus uses the store")
}
