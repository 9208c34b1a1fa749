package observe

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
)

// Now is a reading that begins now and shows nothing. A reading that is newer (topic.PodObservation.NewerThan) shows
// whatever has happened by now.
func Now() topic.PodObservation { return topic.PodObservation{At: time.Now(), Uptime: sinceBoot()} }

// progress is how far a container is on its way, which has no way back.
var progress = map[topic.ContainerState]int{
	topic.ContainerCreated: 1, topic.ContainerRunning: 2,
	topic.ContainerExited: 3,
}

// Ahead reports whether a reading shows an object further on its way than another reading does. The one that began
// first may do so: its details were read later.
func Ahead(reading, than topic.PodObservation) bool {
	for _, c := range reading.Containers {
		if slices.ContainsFunc(than.Containers, func(o topic.Container) bool {
			return o.ID == c.ID && progress[c.State] > progress[o.State]
		}) {
			return true
		}
	}
	for _, s := range reading.Sandboxes {
		if slices.ContainsFunc(than.Sandboxes, func(o topic.Sandbox) bool { return o.ID == s.ID && o.Ready && !s.Ready }) {
			return true
		}
	}
	return false
}

// Agrees reports whether an observation has the same sandboxes and containers in the same states as the lists: if so,
// nothing has begun or ended since.
func (l Listed) Agrees(seen topic.PodObservation) bool {
	if len(l.Sandboxes) != len(seen.Sandboxes) || len(l.Containers) != len(seen.Containers) {
		return false
	}
	ready := make(map[string]bool, len(seen.Sandboxes))
	for _, sandbox := range seen.Sandboxes {
		ready[sandbox.ID] = sandbox.Ready
	}
	for _, sandbox := range l.Sandboxes {
		was, known := ready[sandbox.GetId()]
		if !known || was != (sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY) {
			return false
		}
	}
	states := make(map[string]topic.ContainerState, len(seen.Containers))
	for _, container := range seen.Containers {
		states[container.ID] = container.State
	}
	for _, container := range l.Containers {
		if was, known := states[container.GetId()]; !known || was != stateOf(container.GetState()) {
			return false
		}
	}
	return true
}
