package world

import (
	"fmt"
	"time"

	"kubelot.dev/bus/topic"
)

// silence is how long after its last beat a daemon counts as away: two beats of 30 s and a little.
const silence = 65 * time.Second

// SyncLoop says why pods are not being looked after: podsync or pleg is unhealthy or silent. Nil means that they are.
func (w *World) SyncLoop(now time.Time) error {
	for _, name := range []string{"podsync", "pleg"} {
		h, known := w.Health[name]
		switch {
		case !known:
			return fmt.Errorf("kubelot-%s has not been heard of yet", name)
		case h.State == topic.Unhealthy:
			return fmt.Errorf("kubelot-%s is not healthy: %s", name, h.Message)
		case now.Sub(h.Beat) >= silence:
			return fmt.Errorf("kubelot-%s was last heard of at %s", name, h.Beat.UTC().Format(time.RFC3339))
		}
	}
	return nil
}
