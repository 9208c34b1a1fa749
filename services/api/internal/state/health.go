package state

import (
	"fmt"
	"time"

	"kubelot.dev/bus/topic"
)

// SyncLoop says why pods are not being looked after: podsync or pleg is unhealthy or silent. Nil means that they are.
func (s *State) SyncLoop(now time.Time) error {
	for _, name := range []string{"podsync", "pleg"} {
		h, known := s.Health[name]
		switch {
		case !known:
			return fmt.Errorf("kubelot-%s has not reported yet", name)
		case h.State == topic.Unhealthy:
			return fmt.Errorf("kubelot-%s is not healthy: %s", name, h.Message)
		case h.Silent(now):
			return fmt.Errorf("kubelot-%s last reported at %s", name, h.Beat.UTC().Format(time.RFC3339))
		}
	}
	return nil
}
