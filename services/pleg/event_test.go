package pleg

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
)

func TestShows(t *testing.T) {
	const (
		created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
		started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
		stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	)
	for _, c := range []struct {
		kind runtimeapi.ContainerEventType
		// state is the container's; empty where it isn't there.
		state topic.ContainerState
		want  bool
	}{
		{created, "", false},
		{created, topic.ContainerCreated, true},
		{created, topic.ContainerExited, true},
		{started, "", false},
		{started, topic.ContainerCreated, false},
		{started, topic.ContainerRunning, true},
		{started, topic.ContainerExited, true},
		{stopped, "", true},
		{stopped, topic.ContainerRunning, false},
		{stopped, topic.ContainerExited, true},
		{stopped, topic.ContainerUnknown, true},
		{deleted, "", true},
		{deleted, topic.ContainerExited, false},
	} {
		var seen topic.PodObservation
		if c.state != "" {
			seen.Containers = []topic.Container{{ID: "c", Name: "app", State: c.state}}
		}
		if got := shows(seen, "c", c.kind); got != c.want {
			t.Errorf("a container in state %q shows %s: %t, want %t", c.state, c.kind, got, c.want)
		}
	}
}
