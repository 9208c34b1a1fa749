package state

import (
	"cmp"
	"fmt"
	"time"

	"kubelot.dev/bus/topic"
)

// SyncLoop says why pods are not being looked after: podsync or pleg doesn't work. Nil means that they are.
func (s *State) SyncLoop(now time.Time) error {
	return cmp.Or(s.Works("podsync", now), s.Works("pleg", now))
}

// Works says why a daemon doesn't work: it hasn't reported, says so, has ended in order or is silent. The bus keeps
// what was reported before all daemons were stopped, so that one that hasn't started again is told from one that runs.
func (s *State) Works(name string, now time.Time) error {
	h, known := s.Health[name]
	switch {
	case !known:
		return fmt.Errorf("kubelot-%s has not reported yet", name)
	case h.State == topic.Unhealthy:
		return fmt.Errorf("kubelot-%s is not healthy: %s", name, h.Message)
	case h.State == topic.Stopped:
		return fmt.Errorf("kubelot-%s was stopped at %s", name, h.Beat.UTC().Format(time.RFC3339))
	case h.Silent(now):
		return fmt.Errorf("kubelot-%s last reported at %s", name, h.Beat.UTC().Format(time.RFC3339))
	}
	return nil
}
