package pleg

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
)

// event is what is kept of one event of the runtime.
type event struct {
	// object is the ID of a container or sandbox, pod its pod's UID where the event tells it.
	object, pod string
	kind        runtimeapi.ContainerEventType
}

func newEvent(e *runtimeapi.ContainerEventResponse) event {
	result := event{object: e.GetContainerId(), kind: e.GetContainerEventType()}
	if sandbox := e.GetPodSandboxStatus(); sandbox != nil {
		result.pod = labels.Pod(sandbox.GetLabels()).UID
		if result.pod == "" {
			result.pod = sandbox.GetMetadata().GetUid()
		}
	}
	return result
}

// patience is how long an event may wait for those that usually follow it. Nobody hurries for a created
// container, since it is about to be started; starts and ends are what others wait for.
func (e event) patience() time.Duration {
	switch e.kind {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		return 50 * time.Millisecond
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return 10 * time.Millisecond
	default:
		return 0
	}
}

// contradicted tells whether an observation shows the object as it was before the event. The runtime says
// some things before they can be read: containerd tells of a sandbox's removal while it is still listed.
func contradicted(kind runtimeapi.ContainerEventType, object string, seen topic.PodObservation) bool {
	exists, begun, running := find(object, seen)
	switch kind {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		return !exists
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return !begun
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return running
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return exists
	default:
		return false
	}
}

// find looks an object up: whether it exists, has ever been started, and runs.
func find(object string, seen topic.PodObservation) (exists, begun, running bool) {
	for _, sandbox := range seen.Sandboxes {
		if sandbox.ID == object {
			return true, true, sandbox.Ready
		}
	}
	for _, container := range seen.Containers {
		if container.ID == object {
			return true, container.State != topic.ContainerCreated, container.State == topic.ContainerRunning
		}
	}
	return false, false, false
}
