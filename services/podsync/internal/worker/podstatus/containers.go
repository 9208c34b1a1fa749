package podstatus

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// containerStatuses returns a status for each container, in the order of the specification.
func containerStatuses(in Input, containers []corev1.Container,
	previous []corev1.ContainerStatus,
) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for i := range containers {
		c := &containers[i]
		newest, before := runs(in.Obs, c.Name)
		statuses = append(statuses, containerStatus(in, c, newest, before, find(previous, c.Name)))
	}
	return statuses
}

func find(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// runs are the newest container of that name and the newest ended one before it.
func runs(obs topic.PodObservation, name string) (newest, before *topic.Container) {
	for i := range obs.Containers {
		c := &obs.Containers[i]
		if c.Name != name {
			continue
		}
		if newest == nil {
			newest = c
			continue
		}
		if c.State == topic.ContainerExited {
			return newest, c
		}
	}
	return newest, before
}

func containerStatus(in Input, c *corev1.Container, newest, before *topic.Container,
	previous *corev1.ContainerStatus,
) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, Started: new(bool),
		VolumeMounts: mounts(c, in.Node.RecursiveReadOnly),
	}
	if newest == nil {
		unseen(&status, in, previous)
		return status
	}
	status.RestartCount = int32(newest.RestartCount)
	if previous != nil { // a runtime that has lost the runs before begins again
		status.RestartCount = max(status.RestartCount, previous.RestartCount)
	}
	status.ContainerID = runtimeID(in, newest.ID)
	status.ImageID = newest.ImageRef
	if newest.Image != "" {
		status.Image = newest.Image
	}
	status.AllocatedResources = c.Resources.Requests.DeepCopy()
	status.Resources = resources(in, c, newest)
	status.User = newest.User
	status.StopSignal = stopSignal(c, newest.StopSignal)
	current(&status, in, c, newest, previous)
	last(&status, in, newest, before, previous)
	return status
}

// unseen sets the status of a container that the runtime doesn't have yet, or has no longer.
func unseen(status *corev1.ContainerStatus, in Input, previous *corev1.ContainerStatus) {
	waiting := in.Waiting[status.Name]
	if waiting.Reason == "" {
		waiting.Reason = plan.ReasonContainerCreating
		if len(in.Pod.Spec.InitContainers) > 0 {
			waiting.Reason = plan.ReasonPodInitializing
		}
	}
	status.State.Waiting = &corev1.ContainerStateWaiting{Reason: waiting.Reason, Message: waiting.Message}
	if previous == nil {
		return
	}
	status.RestartCount = previous.RestartCount
	status.LastTerminationState = previous.LastTerminationState
	switch {
	case previous.State.Terminated != nil && (in.Ending || waiting.Reason == plan.ReasonPodInitializing ||
		in.Waiting[status.Name].Reason == ""):
		status.State = previous.State
		status.ContainerID, status.ImageID, status.Image = previous.ContainerID, previous.ImageID, previous.Image
	case previous.State.Running != nil:
		// It ran and its record is gone: the runtime's state was lost or somebody removed it.
		unknown := unlocated()
		unknown.Terminated.ContainerID, unknown.Terminated.StartedAt = previous.ContainerID, previous.State.Running.StartedAt
		if in.Ending {
			status.State = unknown
		} else {
			status.LastTerminationState = unknown
			status.LastTerminationState.Terminated.Message = "The container could not be located when the pod was deleted.  " +
				"The container used to be Running"
		}
		status.ContainerID, status.ImageID, status.Image = previous.ContainerID, previous.ImageID, previous.Image
	}
}

// current sets the state of the newest run.
func current(status *corev1.ContainerStatus, in Input, c *corev1.Container, newest *topic.Container,
	previous *corev1.ContainerStatus,
) {
	waiting, isWaiting := in.Waiting[c.Name]
	switch {
	case newest.State == topic.ContainerRunning && !in.Busy[c.Name]:
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(newest.StartedAt)}
	case newest.State == topic.ContainerExited && (!isWaiting || in.Ending):
		status.State.Terminated = terminated(in, newest, previous)
	case newest.State == topic.ContainerUnknown:
		status.State.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "ContainerStatusUnknown", ContainerID: status.ContainerID,
			Message: "The runtime doesn't know what became of the container",
		}
	default:
		if waiting.Reason == "" {
			waiting.Reason = plan.ReasonContainerCreating
		}
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: waiting.Reason, Message: waiting.Message}
	}
}

// last sets the state of the previous run: that of the newest run if it has ended and the container waits for the next
// one, otherwise that of the run before it. While a hook stops a container it isn't decided whether another run
// follows, unless the container has waited for it already.
func last(status *corev1.ContainerStatus, in Input, newest, before *topic.Container, previous *corev1.ContainerStatus) {
	follows := !in.Busy[status.Name]
	if previous != nil && previous.LastTerminationState.Terminated != nil {
		follows = follows || previous.LastTerminationState.Terminated.ContainerID == status.ContainerID
	}
	switch {
	case status.State.Waiting != nil && newest.State == topic.ContainerExited && follows:
		status.LastTerminationState.Terminated = terminated(in, newest, previous)
	case before != nil:
		status.LastTerminationState.Terminated = terminated(in, before, previous)
	case previous != nil && previous.State.Terminated != nil && previous.ContainerID != status.ContainerID:
		status.LastTerminationState = previous.State // its container is removed already
	case previous != nil:
		// It may even be the state of the newest run, if the container waited for its next run and now stays ended. The run
		// before that one may be removed already, and nothing newer is known of it.
		status.LastTerminationState = previous.LastTerminationState
	}
}

// terminated is the state of an ended run, with the runtime's reason or the one that follows from the exit code.
func terminated(in Input, c *topic.Container, previous *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	reason := c.Reason
	if reason == "" {
		reason = "Completed"
		if c.ExitCode != 0 {
			reason = "Error"
		}
	}
	message := in.Messages[c.ID]
	if message == "" {
		message = cmp.Or(messageBefore(previous, runtimeID(in, c.ID)), c.Message)
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: reason, Message: message,
		StartedAt: moment(c.StartedAt), FinishedAt: moment(c.FinishedAt),
		ContainerID: runtimeID(in, c.ID),
	}
}

// messageBefore is the termination message that the previous status has for the same run. It is used if the file wasn't
// read again yet, or is gone.
func messageBefore(previous *corev1.ContainerStatus, id string) string {
	if previous == nil {
		return ""
	}
	for _, state := range []corev1.ContainerState{previous.State, previous.LastTerminationState} {
		if t := state.Terminated; t != nil && t.ContainerID == id {
			return t.Message
		}
	}
	return ""
}

// moment converts a time of the runtime. The runtime has no start time for a container that couldn't be started. The
// kubelet shows 1970 there.
func moment(t time.Time) metav1.Time {
	if t.IsZero() {
		t = time.Unix(0, 0)
	}
	return metav1.NewTime(t)
}

// runtimeID is the container's ID in the form "<runtime>://<id>".
func runtimeID(in Input, id string) string {
	name := in.Node.RuntimeName
	if name == "" {
		name = "containerd"
	}
	return strings.ToLower(name) + "://" + id
}

// resources are those that the container has: those of the specification, unless a resize hasn't reached it yet.
func resources(in Input, c *corev1.Container, newest *topic.Container) *corev1.ResourceRequirements {
	if has, differs := in.Before[newest.ID]; differs && newest.State == topic.ContainerRunning {
		return has.DeepCopy()
	}
	return c.Resources.DeepCopy()
}

// stopSignal returns the signal that ends the container if the pod asks for one (KEP-4960, off by default).
func stopSignal(c *corev1.Container, name string) *corev1.Signal {
	if name == "" || c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return nil
	}
	signal := corev1.Signal(name)
	return &signal
}

// mounts returns the status of the volume mounts. For a read-only one it says whether it is so recursively (KEP-3857).
func mounts(c *corev1.Container, supported bool) []corev1.VolumeMountStatus {
	var statuses []corev1.VolumeMountStatus
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		s := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if recursive, err := criconfig.RecursiveReadOnly(m, supported); err == nil && recursive {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		statuses = append(statuses, s)
	}
	return statuses
}
