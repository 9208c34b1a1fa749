package dra

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
)

// The loop is watched while the manager runs, and not longer: it may be started again.
func TestTheLoopIsWatched(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var alive context.Context
		var loops []chan<- func()
		m, err := New(Config{RootDir: root, Node: "n"}, Ports{
			Watched: func(ctx context.Context, all ...chan<- func()) {
				alive, loops = ctx, all //nolint:fatcontext // whether it ends is looked at
			},
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		synctest.Wait()
		if len(loops) != 1 {
			t.Fatalf("%d loops are watched", len(loops))
		}
		answered := make(chan struct{})
		loops[0] <- func() { close(answered) }
		<-answered
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if alive.Err() == nil {
			t.Error("the loop is watched after its end")
		}
	})
}

// The loop waits for the disk, and goes on by the watchdog's judgement meanwhile.
func TestADiskThatHangsIsNoLoopThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(Config{}, Ports{})
		if err != nil {
			t.Fatal(err)
		}
		disk, written := make(chan struct{}), make(chan error, 1)
		go func() {
			written <- m.pulse.during(func() error {
				<-disk
				return errors.New("it is full")
			})
		}()
		for range 2 {
			answered := make(chan struct{})
			m.pulse <- func() { close(answered) }
			<-answered
		}
		close(disk)
		if err := <-written; err == nil {
			t.Error("the error of the disk is lost")
		}
	})
}
