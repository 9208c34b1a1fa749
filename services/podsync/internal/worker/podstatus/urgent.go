package podstatus

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"kubelot.dev/services/podsync/internal/worker/plan"
)

// Urgent reports whether a status says something new that somebody waits for: anything but the small steps of a start
// (the sandbox and its address, a container that was created), which the next status will tell too.
func Urgent(before, after corev1.PodStatus) bool {
	if before.Phase != after.Phase || before.Reason != after.Reason || before.Message != after.Message {
		return true
	}
	small := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReadyToStartContainers }
	same := func(a, b corev1.PodCondition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
	}
	if !slices.EqualFunc(slices.DeleteFunc(slices.Clone(before.Conditions), small),
		slices.DeleteFunc(slices.Clone(after.Conditions), small), same) {
		return true
	}
	return urgentStates(before.InitContainerStatuses, after.InitContainerStatuses) ||
		urgentStates(before.ContainerStatuses, after.ContainerStatuses) ||
		urgentStates(before.EphemeralContainerStatuses, after.EphemeralContainerStatuses)
}

func urgentStates(before, after []corev1.ContainerStatus) bool {
	if len(before) != len(after) {
		return len(before) > 0 || slices.ContainsFunc(after, func(s corev1.ContainerStatus) bool { return !coming(s.State) })
	}
	for i := range after {
		if coming(before[i].State) && coming(after[i].State) && before[i].RestartCount == after[i].RestartCount {
			continue
		}
		if !equality.Semantic.DeepEqual(before[i], after[i]) {
			return true
		}
	}
	return false
}

// coming reports whether the container is on its way up, without trouble.
func coming(s corev1.ContainerState) bool {
	return s.Waiting != nil && (s.Waiting.Reason == plan.ReasonContainerCreating ||
		s.Waiting.Reason == plan.ReasonPodInitializing)
}
