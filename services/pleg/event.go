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
	// sandbox is true where the object is the pod's sandbox.
	sandbox bool
}

func newEvent(e *runtimeapi.ContainerEventResponse) event {
	result := event{object: e.GetContainerId(), kind: e.GetContainerEventType()}
	if sandbox := e.GetPodSandboxStatus(); sandbox != nil {
		result.sandbox = sandbox.GetId() == result.object
		result.pod = labels.Pod(sandbox.GetLabels()).UID
		if result.pod == "" {
			result.pod = sandbox.GetMetadata().GetUid()
		}
	}
	return result
}

// comingUp is how long what is on its way up waits for the rest of it. A created container is about to be started,
// and so is the first container of a sandbox that has started; podsync, who asked for both, has read them itself.
const comingUp = 500 * time.Millisecond

// goingAway is how long the removal of a container waits for that of its sandbox, which the runtime tells of while it still lists
// it: a pod that goes is read once and not three times. Nobody waits for that.
const goingAway = 80 * time.Millisecond

// patience is how long an event may wait for those that usually follow it. Starts and ends of containers are what others
// wait for, and the end of a sandbox.
func (e event) patience() time.Duration {
	switch e.kind {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		return comingUp
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		if e.sandbox {
			return comingUp
		}
		return 0
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return goingAway
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
