package stale

import (
	"testing"
	"time"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// due are the selectors of what is due so long after the start.
func due(t *testing.T, b *Book, after time.Duration, want ...string) []*Deletion {
	t.Helper()
	all := b.Due(begin.Add(after))
	if len(all) != len(want) {
		t.Fatalf("after %s %d deletions are due, want %q", after, len(all), want)
	}
	for i, d := range all {
		if got := d.Selector("n"); got != want[i] {
			t.Errorf("after %s %s is due, want %s", after, got, want[i])
		}
	}
	return all
}

const a = "spec.nodeName=n,spec.driver=a"

func TestStart(t *testing.T) {
	b := New()
	due(t, b, 0)
	b.See(map[string]bool{"b": false, "a": false}, begin)
	first := due(t, b, 0, "spec.nodeName=n,spec.driver!=a,spec.driver!=b")[0]
	due(t, b, 0)
	b.Ended(first, true, begin)
	due(t, b, 0)
	// A driver that has come since keeps its slices.
	b.See(map[string]bool{"b": true, "a": true, "c": true}, begin)
	if next := b.Next(); !next.Equal(begin.Add(firstPause)) {
		t.Errorf("next at %s", next)
	}
	first = due(t, b, time.Second, "spec.nodeName=n,spec.driver!=a,spec.driver!=b,spec.driver!=c")[0]
	b.Ended(first, false, begin)
	due(t, b, time.Hour)
	if !b.Next().IsZero() {
		t.Error("something is due some time")
	}
}

func started(t *testing.T, drivers map[string]bool) *Book {
	t.Helper()
	b := New()
	b.See(drivers, begin)
	b.Ended(b.Due(begin)[0], false, begin)
	return b
}

func TestADriverThatIsAway(t *testing.T) {
	b := started(t, map[string]bool{"a": true})
	b.See(map[string]bool{}, begin)
	due(t, b, delayed-1)
	// It is back in time, and leaves for good.
	b.See(map[string]bool{"a": true}, begin)
	due(t, b, time.Hour)
	b.See(map[string]bool{"a": false}, begin.Add(time.Hour))
	b.See(map[string]bool{}, begin.Add(time.Hour+10*time.Second))
	due(t, b, time.Hour+delayed-1)
	d := due(t, b, time.Hour+delayed, a)[0]
	b.Ended(d, false, begin)
	b.See(map[string]bool{}, begin.Add(2*time.Hour))
	due(t, b, 3*time.Hour)
	if len(b.known) != 0 {
		t.Errorf("known are %v", b.known)
	}
	// The next time is like the first.
	b.See(map[string]bool{"a": true}, begin.Add(3*time.Hour))
	b.See(map[string]bool{}, begin.Add(3*time.Hour))
	due(t, b, 3*time.Hour+delayed, a)
}

// A driver that registers and never answers loses its slices once.
func TestADriverThatIsDead(t *testing.T) {
	b := started(t, map[string]bool{})
	for after := range 600 {
		now := begin.Add(time.Duration(after) * time.Second)
		b.See(map[string]bool{"a": false}, now)
		for _, d := range b.Due(now) {
			if after != 30 {
				t.Errorf("it is due after %d s", after)
			}
			b.Ended(d, false, now)
		}
	}
}

func TestPauses(t *testing.T) {
	b := started(t, map[string]bool{"a": true})
	b.See(map[string]bool{}, begin)
	at := delayed
	for i, seconds := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		pause := time.Duration(seconds) * time.Second
		b.Ended(due(t, b, at, a)[0], true, begin.Add(at))
		due(t, b, at+pause-1)
		at += pause
		if next := b.Next(); !next.Equal(begin.Add(at)) {
			t.Errorf("after failure %d next at %s, want %s", i+1, next.Sub(begin), at)
		}
	}
	// It comes back while its slices are being deleted: what fails isn't tried again.
	d := due(t, b, at, a)[0]
	b.See(map[string]bool{"a": true}, begin.Add(at))
	b.Ended(d, true, begin.Add(at))
	due(t, b, 24*time.Hour)
}
