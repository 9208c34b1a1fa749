package embed

import (
	"context"
	"testing"
	"time"
)

// The bus's loop receives while the server answers, and not while it doesn't.
func TestPulseDependsOnTheServer(t *testing.T) {
	b := startBus(t)
	nc, err := b.server.admin.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	closed, err := b.server.admin.connect()
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for name, c := range map[string]struct {
		ask  func(context.Context) bool
		want bool
	}{
		"a server":            {asker(nc), true},
		"a server that hangs": {func(ctx context.Context) bool { <-ctx.Done(); return false }, false},
		"a closed connection": {asker(closed), false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		inbox, ended := make(chan func()), make(chan struct{})
		go func() {
			defer close(ended)
			pulse(ctx, c.ask, inbox)
		}()
		patience := time.Minute
		if !c.want {
			patience = 100 * time.Millisecond
		}
		got := false
		select {
		case inbox <- func() {}:
			got = true
		case <-time.After(patience):
		}
		if got != c.want {
			t.Errorf("%s: the pulse beats: %v", name, got)
		}
		cancel()
		<-ended
	}
}
