package server

import (
	"testing"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/api/internal/state"
)

// The time of day is set back by an hour after the daemons have beaten.
func TestAClockThatIsSetBackHidesNoSilence(t *testing.T) {
	b := newBed(t, "")
	for name := range b.health {
		h := topic.DaemonHealth{State: topic.Healthy, Beat: time.Now().Add(time.Hour)}
		if err := b.health[name].Set(name, h); err != nil {
			t.Fatal(err)
		}
	}
	b.until(func() bool { code, _ := b.call("GET", "/healthz"); return code == 200 })
	later := time.Now().Add(2 * time.Minute)
	problem, err := ask(t.Context(), b.service, func(w *state.State) error { return w.SyncLoop(later) })
	if err != nil {
		t.Fatal(err)
	}
	if problem == nil {
		t.Error("healthy although nobody has beaten for two minutes")
	}
}
