package gc

import (
	"testing"
	"time"

	"kubelot.dev/bus/topic"
)

func TestLeftovers(t *testing.T) {
	now := time.Now()
	for name, v := range map[string]struct {
		seen string
		gone time.Duration
		want bool
		kept int
	}{
		"the runtime has something of it":     {"a", leftAfter, true, 0},
		"the runtime has nothing of it":       {"b", leftAfter, false, 0},
		"pleg may not have said so yet":       {"a", leftAfter - 1, false, 1},
		"nothing of it, but that is not sure": {"b", leftAfter - 1, false, 1},
	} {
		s := newState()
		s.left["a"] = now.Add(-v.gone)
		s.seen[v.seen] = topic.PodObservation{}
		if got := s.leftovers(now); got != v.want || len(s.left) != v.kept {
			t.Errorf("%s: %v, and %d are looked for still", name, got, len(s.left))
		}
	}
}
