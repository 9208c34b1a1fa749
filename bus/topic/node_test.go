package topic_test

import (
	"testing"
	"time"

	"kubelot.dev/bus/topic"
)

// A daemon that was frozen for a minute right before its beat is not away yet; one that misses a third beat is.
func TestSilent(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		since time.Duration
		want  bool
	}{
		{-time.Second, false}, // the clock was set back
		{topic.BeatEvery + time.Minute, false},
		{3*topic.BeatEvery + topic.BeatEvery/2, true},
	} {
		h := topic.DaemonHealth{State: topic.Healthy, Beat: now.Add(-c.since)}
		if got := h.Silent(now); got != c.want {
			t.Errorf("%v after its beat: silent %v, want %v", c.since, got, c.want)
		}
		if h.Asleep = true; h.Silent(now) {
			t.Errorf("%v after its beat a daemon that sleeps counts as away", c.since)
		}
	}
}
