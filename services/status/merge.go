package status

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// messageBudget bounds the termination messages of all containers of a pod together, in bytes.
const messageBudget = 12 * 1024

// Merge makes the status to be written from what podsync computed (patch), the pod's spec, the probes'
// verdicts and the status that the API server has (current). It changes none of its arguments.
func Merge(patch topic.PodStatus, pod topic.Pod, probes Probes, current corev1.PodStatus,
	now time.Time,
) corev1.PodStatus {
	s := *patch.Status.DeepCopy()
	keepForeign(&s, current)
	// A static pod's manifest may come back in a form it had before: the pod has the same UID again and a life before it.
	if terminal(current.Phase) && !pod.Static() {
		keepTerminal(&s, current)
	}
	if !terminal(s.Phase) {
		// Why the node ends the pod is reported with the phase, once nothing runs any more.
		if s.Reason != "" {
			s.Reason, s.Message = current.Reason, current.Message
		}
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget
		})
	}
	mergeReadiness(&s, pod.Pod, probes, current)
	normalize(&s, pod.Pod)
	s.Conditions = conditions(conditionInput{
		pod: pod.Pod, status: &s, patch: s.Conditions, current: current.Conditions, now: metav1.NewTime(now),
	})
	return s
}

func terminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// keepForeign keeps the fields that others own and those that must not change once they are set.
func keepForeign(s *corev1.PodStatus, current corev1.PodStatus) {
	s.NominatedNodeName = current.NominatedNodeName
	s.ResourceClaimStatuses = current.ResourceClaimStatuses
	s.ExtendedResourceClaimStatus = current.ExtendedResourceClaimStatus
	s.NodeAllocatableResourceClaimStatuses = current.NodeAllocatableResourceClaimStatuses
	if current.StartTime != nil {
		s.StartTime = current.StartTime.DeepCopy()
	}
	if s.QOSClass == "" {
		s.QOSClass = current.QOSClass
	}
	s.ObservedGeneration = max(s.ObservedGeneration, current.ObservedGeneration)
}

// keepTerminal holds a pod that has ended to its end: its phase, and the containers that have terminated.
func keepTerminal(s *corev1.PodStatus, current corev1.PodStatus) {
	if s.Phase != current.Phase {
		s.Phase, s.Reason, s.Message = current.Phase, current.Reason, current.Message
	}
	for _, lists := range [][2][]corev1.ContainerStatus{
		{s.ContainerStatuses, current.ContainerStatuses},
		{s.InitContainerStatuses, current.InitContainerStatuses},
		{s.EphemeralContainerStatuses, current.EphemeralContainerStatuses},
	} {
		for i := range lists[0] {
			c := &lists[0][i]
			if old := containerStatus(lists[1], c.Name); old != nil && old.State.Terminated != nil && c.State.Terminated == nil {
				old.DeepCopyInto(c)
			}
		}
	}
}

func containerStatus(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// normalize gives the status the form in which the API server returns it, so that equal states compare equal:
// whole seconds, container statuses in a fixed order, bounded messages.
func normalize(s *corev1.PodStatus, pod *corev1.Pod) {
	if s.StartTime != nil {
		*s.StartTime = s.StartTime.Rfc3339Copy()
	}
	budget := messageBudget / max(1, len(pod.Spec.Containers)+len(pod.Spec.InitContainers)+
		len(pod.Spec.EphemeralContainers))
	for _, list := range [][]corev1.ContainerStatus{
		s.ContainerStatuses, s.InitContainerStatuses,
		s.EphemeralContainerStatuses,
	} {
		for i := range list {
			normalizeState(&list[i].State, budget)
			normalizeState(&list[i].LastTerminationState, budget)
		}
	}
	byName := func(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }
	slices.SortStableFunc(s.ContainerStatuses, byName)
	slices.SortStableFunc(s.EphemeralContainerStatuses, byName)
}

func normalizeState(state *corev1.ContainerState, budget int) {
	if r := state.Running; r != nil {
		r.StartedAt = r.StartedAt.Rfc3339Copy()
	}
	if t := state.Terminated; t != nil {
		t.StartedAt, t.FinishedAt = t.StartedAt.Rfc3339Copy(), t.FinishedAt.Rfc3339Copy()
		if len(t.Message) > budget {
			// A cut character would make the message invalid UTF-8.
			t.Message = strings.ToValidUTF8(t.Message[:budget], "")
		}
	}
}
