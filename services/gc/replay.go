package gc

import (
	"fmt"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc/internal/container"
	"kubelot.dev/services/gc/internal/evict"
)

// What follows is gc's deciding without its doing, for the check of recordings (docs/adr/0031).

// The inputs of the choice of dead containers and sandboxes.
type (
	// DeadInput is what is chosen from.
	DeadInput = container.Input
	// DeadPolicy is how many are kept.
	DeadPolicy = container.Policy
	// PodLife is how a pod stands.
	PodLife = container.Life
)

// How pods stand.
const (
	PodGone   = container.Gone
	PodWanted = container.Wanted
	PodEnded  = container.Ended
)

// PickDead decides about every dead container and every sandbox that isn't ready.
func PickDead(in DeadInput) []topic.Decision {
	var all []topic.Decision
	for _, c := range container.Pick(in) {
		all = append(all, c.Decision)
	}
	return all
}

// EvictionSettings are the fields of the configuration that make thresholds.
type EvictionSettings = evict.Settings

// ThresholdMet reports whether so much that is available meets a threshold, which is named as decisions name it. The
// error says that the configuration has no such threshold.
func ThresholdMet(s EvictionSettings, threshold string, available, capacity int64) (bool, error) {
	thresholds, err := evict.Thresholds(s)
	if err != nil {
		return false, err
	}
	for _, t := range evict.ForLayout(thresholds, true) {
		if t.String() == threshold {
			// A threshold that was due stays so until its minimum reclaim is reached.
			o := evict.Observation{Available: available, Capacity: capacity}
			return evict.Met(t, o, t.Reclaim != nil), nil
		}
	}
	return false, fmt.Errorf("there is no threshold %q", threshold)
}

// NeverEvicted reports whether the pod is one that is never evicted.
func NeverEvicted(p topic.Pod) bool {
	return evict.Candidate{Pod: p.Pod, Static: p.Static()}.Critical()
}
