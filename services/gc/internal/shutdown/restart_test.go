package shutdown

import (
	"context"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
)

// logind repeats its announcement to a process that was started again before the bus has said what the earlier process
// had begun: it is that shutdown, and its time goes on.
func TestAnAnnouncementComesBeforeTheEarlierShutdownIsKnown(t *testing.T) {
	inBubble(t, func(r *rig) {
		stop := r.start()
		r.pod("web", 0, 60)
		began := time.Now()
		r.announce(true)
		r.wantAsked("web 20")
		r.ends("web")
		r.pass(15 * time.Second)
		stop()

		s, conn := r.service()
		defer conn.Close()
		ctx, cancel := context.WithCancel(r.t.Context())
		defer s.loop.Wait()
		defer cancel()
		s.say = topic.NodeShutdown.Writer(conn)
		s.announced(ctx, true)
		r.must()
		before := r.state()
		if !before.Started.Equal(began) {
			t.Errorf("the shutdown that began at %s was replaced by %+v", began, before)
		}
		s.restore(ctx, before)
		s.announced(ctx, true) // once more
		r.must()
		if now := r.state(); !s.state.Started.Equal(began) || !now.Started.Equal(began) {
			t.Errorf("the time began again: %s, on the bus %s; want %s", s.state.Started, now.Started, began)
		}
		if len(r.events) != 1 {
			t.Errorf("events %q", r.events)
		}
	})
}

// Where no earlier process has begun a shutdown, one that was announced early is told of late.
func TestAnAnnouncementComesBeforeTheBusAnswers(t *testing.T) {
	for name, before := range map[string]topic.Shutdown{
		"nothing": {}, "another boot's": {Active: true, BootID: "another"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				s, conn := r.service()
				defer conn.Close()
				ctx, cancel := context.WithCancel(r.t.Context())
				defer s.loop.Wait()
				defer cancel()
				s.say = topic.NodeShutdown.Writer(conn)
				began := time.Now()
				s.announced(ctx, true)
				r.pass(time.Second)
				s.restore(ctx, before)
				r.must()
				if now := r.state(); !now.Active || !now.Started.Equal(began) || len(r.events) != 1 {
					t.Errorf("state %+v, events %q", now, r.events)
				}
			})
		})
	}
}
