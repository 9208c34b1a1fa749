package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"kubelot.dev/bus/topic"
)

// A healthy start has no warning, though one daemon waits for another. What stays wrong is warned of.
func TestHealthWarnings(t *testing.T) {
	const warning = "level=WARN"
	for name, c := range map[string]struct {
		after  time.Duration // from the start to the degraded state
		lasts  time.Duration // of the degraded state
		warned bool
	}{
		"at the start, for a moment": {0, time.Second, false},
		"at the start, and it stays": {0, 2 * topic.BeatEvery, true},
		"later, for a moment":        {startGrace, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				log := slog.New(slog.NewTextHandler(&out, nil))
				h := newHealth(nil, new(Pulse), &unit{log: slog.New(slog.DiscardHandler)}, log)
				ctx, cancel := context.WithCancel(t.Context())
				go h.run(ctx)
				time.Sleep(c.after)
				h.Set(topic.Degraded, "waiting")
				time.Sleep(c.lasts)
				h.Set(topic.Healthy, "")
				cancel()
				synctest.Wait()
				if got := strings.Count(out.String(), warning); (got > 0) != c.warned || got > 1 {
					t.Errorf("%d warnings, want them: %v\n%s", got, c.warned, &out)
				}
			})
		})
	}
}

// What a daemon can't read on the bus makes it degraded, beside what it says itself, until it can be read.
func TestUnreadableTopicsDegrade(t *testing.T) {
	h := newHealth(nil, new(Pulse), &unit{log: slog.New(slog.DiscardHandler)}, slog.New(slog.DiscardHandler))
	is := func(state topic.HealthState, message string) {
		t.Helper()
		if h.now.State != state || h.now.Message != message {
			t.Errorf("the health is %s %q, want %s %q", h.now.State, h.now.Message, state, message)
		}
	}
	h.unreadable([]string{"one"})
	is("", "") // a daemon that hasn't said that it is ready isn't
	h.Set(topic.Healthy, "")
	is(topic.Degraded, "one")
	h.unreadable([]string{"one", "two"})
	h.Set(topic.Degraded, "own")
	is(topic.Degraded, "one; two; own")
	h.unreadable(nil)
	is(topic.Degraded, "own")
	h.unreadable([]string{"one"})
	h.Set(topic.Unhealthy, "ill")
	is(topic.Unhealthy, "ill")
}

// A long reason is cut between two characters, and what is no text in it is left out.
func TestALongReasonStaysText(t *testing.T) {
	h := newHealth(nil, new(Pulse), &unit{log: slog.New(slog.DiscardHandler)}, slog.New(slog.DiscardHandler))
	for _, message := range []string{strings.Repeat("ü", maxMessage), "x" + strings.Repeat("ü", maxMessage), "x\xff"} {
		h.Set(topic.Degraded, message)
		if got := h.now.Message; !utf8.ValidString(got) || got == "" || len(got) > maxMessage {
			t.Errorf("of %d bytes the health has %d, which end with %q", len(message), len(got), got[max(0, len(got)-4):])
		}
	}
}
