package probe

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// The time of day may have been set back, or forward, since the container was started.
func TestTheInitialDelayIsNoLongerThanItSays(t *testing.T) {
	now := time.Now()
	for _, kind := range kinds {
		spec := &corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 1}
		for ago, want := range map[time.Duration]time.Duration{
			-time.Hour: 5 * time.Second, 0: 5 * time.Second, 2 * time.Second: 3 * time.Second, time.Minute: 0, time.Hour: 0,
		} {
			target := target{slot: slot{"app", kind}, spec: spec, id: "a", started: now.Add(-ago)}
			got := newSchedule(target).first(target, false, now).Sub(now)
			if kind == topic.ProbeLiveness {
				// It waits for its phase.
				if got < want || got > want+time.Second {
					t.Errorf("%s of a container started %s ago: first run after %s, want %s", kind, ago, got, want)
				}
			} else if got != want {
				t.Errorf("%s of a container started %s ago: first run after %s, want %s", kind, ago, got, want)
			}
		}
	}
}
