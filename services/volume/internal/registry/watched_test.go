package registry

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
)

// The watchdog sees a loop that hangs, also among plugins that don't answer.
func TestTheLoopIsWatched(t *testing.T) {
	watched := make(chan chan<- func(), 1)
	r := New(t.TempDir(), Ports{
		Publisher: &board{now: map[string]topic.Plugin{}, news: make(chan struct{}, 1)}, Log: slog.New(slog.DiscardHandler),
		Watched: func(_ context.Context, loops ...chan<- func()) { watched <- loops[0] },
	})
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	serve(t, filepath.Join(r.dir, "hangs.sock"), &fake{hang: true})
	run(t, r)
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
}
