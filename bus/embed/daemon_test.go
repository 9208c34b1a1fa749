package embed

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/sleep"
)

// Daemons that sleep are woken when a bus begins: it may have lost what they have said.
func TestBeginningWakesThoseThatSleep(t *testing.T) {
	runDir := t.TempDir()
	alarm := sleep.Alarm(runDir, "resource")
	if err := os.Mkdir(filepath.Dir(alarm), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", alarm)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := listener.(*net.UnixListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{RunDir: runDir, BusSocket: filepath.Join(runDir, "bus.sock")}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- daemon.RunWith(ctx, Daemon, daemon.NewEnv(Daemon, cfg, nil, slog.New(slog.DiscardHandler)))
	}()
	if c, err := listener.Accept(); err != nil {
		t.Error("nobody wakes it:", err)
	} else if err := c.Close(); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
