package observe_test

import (
	"testing"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
)

func TestAhead(t *testing.T) {
	container := func(id string, state topic.ContainerState) topic.PodObservation {
		return topic.PodObservation{Containers: []topic.Container{{ID: id, State: state}}}
	}
	sandbox := func(ready bool) topic.PodObservation {
		return topic.PodObservation{Sandboxes: []topic.Sandbox{{ID: "s", Ready: ready}}}
	}
	for name, c := range map[string]struct {
		reading, than topic.PodObservation
		want          bool
	}{
		"the same": {
			container("a", topic.ContainerRunning),
			container("a", topic.ContainerRunning), false,
		},
		"an exit": {
			container("a", topic.ContainerExited),
			container("a", topic.ContainerRunning), true,
		},
		"a start": {
			container("a", topic.ContainerRunning),
			container("a", topic.ContainerCreated), true,
		},
		"before an exit": {
			container("a", topic.ContainerRunning),
			container("a", topic.ContainerExited), false,
		},
		"nothing is told of its state": {
			container("a", topic.ContainerUnknown),
			container("a", topic.ContainerRunning), false,
		},
		"a container that the other lacks": {
			container("b", topic.ContainerExited),
			container("a", topic.ContainerRunning), false,
		},
		"a sandbox that has ended":          {sandbox(false), sandbox(true), true},
		"a sandbox that hasn't ended there": {sandbox(true), sandbox(false), false},
	} {
		if got := observe.Ahead(c.reading, c.than); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
