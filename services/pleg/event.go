package pleg

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
)

// event is what is kept of one event of the runtime.
type event struct {
	// object is the ID of a container or sandbox, pod its pod's UID if the event has it.
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

// comingUp is how long the creation of a container, or the start of a sandbox, waits for what follows: the container is
// about to be started, and so is the sandbox's first container. podsync asked for both, and has read them itself.
const comingUp = 500 * time.Millisecond

// goingAway is how long the removal of a container waits for that of its sandbox, which the runtime announces while it
// still lists it. So a pod that goes is read once and not three times. Nobody waits for that reading.
const goingAway = 80 * time.Millisecond

// patience is how long an event may wait for those that usually follow it. Starts and ends of containers don't wait,
// nor does the end of a sandbox: other daemons need them at once.
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

// shows reports whether a reading shows an object as it is after the event. The runtime says some things before they
// can be read: containerd announces a sandbox's removal while it is still listed.
func shows(seen topic.PodObservation, object string, kind runtimeapi.ContainerEventType) bool {
	exists, begun, running := find(object, seen)
	switch kind {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		return exists
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return begun
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return !running
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return !exists
	default:
		return true
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
