package pleg

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/loop"
)

// idle is a service whose loop the test runs itself.
func (b *bed) idle() *Service {
	b.t.Helper()
	conn := b.bus.Conn("pleg")
	b.t.Cleanup(conn.Close)
	s := New(b.client, daemon.Env{Bus: conn, Log: slog.New(slog.DiscardHandler)}, Options{})
	var err error
	if s.metrics, err = newMetrics(prometheus.NewRegistry()); err != nil {
		b.t.Fatal(err)
	}
	s.pods, s.relist.running = topic.PLEGEvent.Writer(conn), true
	return s
}

// takeLate takes the next function of the loop, and runs it once ctx has ended.
func takeLate(l *loop.Loop, cancel context.CancelFunc) {
	change := <-l.Changes()
	cancel()
	change()
}

// A stream may break while the loop is about to hear that it is open. Then it would count as open while it isn't, and
// the next one wouldn't be followed by a relist.
func TestAStreamThatHasEndedIsNotOpen(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.idle()
		ctx, cancel := context.WithCancel(b.t.Context())
		go s.tell(ctx, streamState{open: true})
		takeLate(s.loop, cancel)
		if s.streamOpen {
			t.Error("the stream counts as open")
		}
	})
}

// A reading that is broken off because pleg stops shows containers without what is known of their ends.
func TestAReadingThatIsBrokenOffIsNotPublished(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.container("u", b.sandbox("u"), "app")
		s := b.idle()
		ctx, cancel := context.WithCancel(b.t.Context())
		s.tracker.mark("u")
		uid, earlier, _ := s.tracker.beginNext()
		go s.read(ctx, uid, earlier)
		takeLate(s.loop, cancel)
		s.loop.Wait()
		if p := s.tracker.pods["u"]; p.published {
			t.Errorf("published %+v", p.seen)
		}
	})
}
