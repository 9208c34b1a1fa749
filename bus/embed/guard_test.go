package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestEachOpeningWaitsLongerThanTheLast(t *testing.T) {
	var p pace
	for i, want := range []float64{1, 2, 4, 8, 16, 32, 60, 60} {
		if got := p.next(time.Second); got.Seconds() != want {
			t.Errorf("pause %d is %s, want %gs", i, got, want)
		}
	}
	if got := p.next(paceQuiet); got != roomEvery {
		t.Errorf("after a quiet minute the pause is %s", got)
	}
}

// A machine that is too busy to answer in time has no broken store.
func TestOnlyAnAnswerTellsThatTheStoreIsBroken(t *testing.T) {
	for err, want := range map[error]bool{
		&jetstream.APIError{Code: 500, Description: "no space left on device"}: true,
		jetstream.ErrJetStreamNotEnabled:                                       true,
		context.DeadlineExceeded:                                               false,
		nats.ErrTimeout:                                                        false,
		nats.ErrNoServers:                                                      false,
		errors.New("unix socket: EOF"):                                         false,
	} {
		if got := broken(fmt.Errorf("stream STATE: %w", err)); got != want {
			t.Errorf("%v: broken is %t", err, got)
		}
	}
}

func TestRoom(t *testing.T) {
	mount := func(options string) string {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
			t.Skipf("only root may mount: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		return dir
	}
	readOnly := mount("size=64m")
	if err := syscall.Mount("", readOnly, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		dir  string
		want bool
	}{
		"plenty":      {mount("size=64m"), true},
		"small":       {mount("size=3m"), true},
		"no inodes":   {mount("size=64m,nr_inodes=16"), false},
		"no limit":    {mount("size=64m,nr_inodes=0"), true},
		"read-only":   {readOnly, false},
		"not a store": {filepath.Join(t.TempDir(), "missing"), false},
	} {
		if got := room(test.dir); got != test.want {
			t.Errorf("%s: room is %t", name, got)
		}
	}
}

func TestAHarmlessErrorRestartsNothing(t *testing.T) {
	b := startBus(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := newNatsLog(slog.New(slog.DiscardHandler))
	log.Errorf("a client may not publish there")
	go func() {
		for left := 1; left > 0 && ctx.Err() == nil; left = len(log.trouble) {
			time.Sleep(roomEvery / 2) // for the guard to look
		}
		cancel()
	}()
	s := &Server{options: b.options}
	s.options.Told = func(trouble error) { t.Errorf("the guard calls the store broken: %v", trouble) }
	if err := s.guard(ctx, b.server.admin, log); err != nil || len(log.trouble) > 0 {
		t.Errorf("the guard ended with %v, %d signals left", err, len(log.trouble))
	}
}
