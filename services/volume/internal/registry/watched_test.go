package registry

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
)

// The watchdog sees a loop that hangs, also among plugins that don't answer.
func TestTheLoopIsWatched(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "plugins_registry"), 0o750); err != nil {
		t.Fatal(err)
	}
	serve(t, filepath.Join(root, "plugins_registry", "hangs.sock"), &fake{hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan chan<- func(), 1)
	r := New(root, Ports{
		Publisher: &board{now: map[string]topic.Plugin{}, news: make(chan struct{}, 1)}, Log: slog.New(slog.DiscardHandler),
		Watched: func(_ context.Context, loops ...chan<- func()) { watched <- loops[0] },
	})
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	loop := <-watched
	for range 3 {
		answered := make(chan struct{})
		select {
		case loop <- func() { close(answered) }:
			<-answered
		case <-time.After(time.Minute):
			t.Fatal("the loop doesn't answer")
		}
	}
	cancel()
	running.Wait()
}
