package podstatus

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/podspec"
)

// lost gives containers that still wait when the pod has ended for good a terminated state: nobody can say that they
// succeeded. Containers that were never due, as an init container before them had not ended, keep waiting.
func lost(in Input, status *corev1.PodStatus) {
	if initialized(in.Pod, status) {
		markLost(status.ContainerStatuses)
	}
	markLost(begun(status.InitContainerStatuses))
}

func markLost(statuses []corev1.ContainerStatus) {
	for i := range statuses {
		if statuses[i].State.Terminated == nil {
			statuses[i].State = unlocated()
		}
	}
}

// unlocated is the state of a container that the runtime doesn't know.
func unlocated() corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "ContainerStatusUnknown",
		Message: "The container could not be located when the pod was terminated",
	}}
}

// initialized reports whether the main containers were due: one of them has run, or the init containers are done.
func initialized(pod *corev1.Pod, status *corev1.PodStatus) bool {
	for _, s := range status.ContainerStatuses {
		if s.State.Waiting == nil || s.LastTerminationState.Terminated != nil {
			return true
		}
	}
	for i, s := range status.InitContainerStatuses {
		done := s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		if !done && (!podspec.IsSidecar(&pod.Spec.InitContainers[i]) || s.State.Waiting != nil) {
			return false
		}
	}
	return true
}

// begun are the init containers up to the last that has run; the first is always among them.
func begun(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	for i := len(statuses) - 1; i > 0; i-- {
		if statuses[i].State.Waiting == nil || statuses[i].LastTerminationState.Terminated != nil {
			return statuses[:i+1]
		}
	}
	return statuses[:min(1, len(statuses))]
}
