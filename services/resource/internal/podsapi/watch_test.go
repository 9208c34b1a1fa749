package podsapi

import (
	"errors"
	"testing"

	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

func newWatchers() *watchers { return &watchers{all: map[*watcher]bool{}} }

func add(t *testing.T, ws *watchers) *watcher {
	t.Helper()
	w, err := ws.add(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func of(size int) *event { return &event{podsv1alpha1.EventType_MODIFIED, make([]byte, size)} }

// ended holds that the watch has ended for the reason, and that nothing more is received.
func ended(t *testing.T, w *watcher, why error) {
	t.Helper()
	e, ok := <-w.events
	if e, err := w.take(e, ok); e != nil || !errors.Is(err, why) {
		t.Errorf("received is %v, %v; want that it has ended: %v", e, err, why)
	}
}

func TestAWatcherThatIsSlowIsDropped(t *testing.T) {
	for name, c := range map[string]struct{ size, room int }{
		"by number": {1, queueEvents},
		"by bytes":  {queueBytes / 4, 4},
		"one event that is larger than the whole queue": {queueBytes + 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWatchers()
			slow, fast := add(t, ws), add(t, ws)
			for i := range c.room {
				if n := ws.tell(of(c.size)); n != 0 {
					t.Fatalf("%d watchers are dropped at event %d, want room for %d", n, i, c.room)
				}
				if _, err := fast.take(<-fast.events, true); err != nil {
					t.Fatal(err)
				}
			}
			if n := ws.tell(of(c.size)); n != 1 {
				t.Fatalf("%d watchers are dropped, want the slow one", n)
			}
			ended(t, slow, errSlow)
			if _, err := fast.take(<-fast.events, true); err != nil {
				t.Errorf("the other watch has ended: %v", err)
			}
			ws.remove(slow) // as its call does afterwards
			if n := ws.tell(of(c.size)); n != 0 {
				t.Errorf("%d watchers are dropped once more", n)
			}
		})
	}
}

// TestNothingIsSentAfterAGap has an event received before the watch ends, of which the receiver hears only afterwards:
// what was before the event may have been thrown away.
func TestNothingIsSentAfterAGap(t *testing.T) {
	ws := newWatchers()
	w := add(t, ws)
	ws.tell(of(1))
	e, ok := <-w.events
	ws.close()
	if e, err := w.take(e, ok); e != nil || !errors.Is(err, errStops) {
		t.Errorf("received is %v, %v; want that it has ended", e, err)
	}
	ended(t, w, errStops)
}

// TestRoomComesBack has a watcher read late, but read.
func TestRoomComesBack(t *testing.T) {
	ws := newWatchers()
	w, e := add(t, ws), of(queueBytes/2)
	for range 3 * queueEvents {
		if n := ws.tell(e); n != 0 {
			t.Fatal("the watcher was dropped")
		}
		if len(w.events) == 2 {
			for range 2 {
				if _, err := w.take(<-w.events, true); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestTheNumberOfWatchersIsBounded(t *testing.T) {
	ws := newWatchers()
	first := add(t, ws)
	for range maxWatchers - 1 {
		add(t, ws)
	}
	if _, err := ws.add(nil); !errors.Is(err, errTooManyWatchers) {
		t.Errorf("one more is answered with %v", err)
	}
	ws.remove(first)
	last := add(t, ws)
	ws.close()
	ended(t, last, errStops)
	if _, err := ws.add(nil); !errors.Is(err, errStops) {
		t.Errorf("one after the end is answered with %v", err)
	}
}
