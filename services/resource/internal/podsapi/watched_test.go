package podsapi

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The loop is watched while the API is served, and not longer: it may be served again.
func TestTheLoopIsWatched(t *testing.T) {
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var alive context.Context
	var loops []chan<- func()
	told := make(chan struct{})
	server := New(t.TempDir(), Ports{
		Source: newSource(), Metrics: metrics, Watched: func(ctx context.Context, all ...chan<- func()) {
			alive, loops = ctx, all //nolint:fatcontext // whether it ends is looked at
			close(told)
		},
	}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	select {
	case <-told:
	case <-time.After(limit):
		t.Fatal("no loop is watched")
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
}
