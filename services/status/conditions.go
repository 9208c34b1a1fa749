package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// The reasons of pod conditions; tools know them.
const (
	reasonUnknownStatuses = "UnknownContainerStatuses"
	reasonCompleted       = "PodCompleted"
	reasonFailed          = "PodFailed"
	reasonNotReady        = "ContainersNotReady"
	reasonNotInitialized  = "ContainersNotInitialized"
	reasonGatesNotReady   = "ReadinessGatesNotReady"
)

// conditionInput is what a pod's conditions follow from.
type conditionInput struct {
	pod     *corev1.Pod
	status  *corev1.PodStatus     // merged, except for the conditions
	patch   []corev1.PodCondition // from podsync
	current []corev1.PodCondition // from the API server
	now     metav1.Time
}

// conditions are the conditions of other owners as they are, then the node's own.
func conditions(in conditionInput) []corev1.PodCondition {
	var all []corev1.PodCondition
	for _, c := range in.current {
		if !topic.NodeOwned(c.Type) && condition(in.patch, c.Type) == nil {
			all = append(all, c)
		}
	}
	computed := map[corev1.PodConditionType]bool{}
	own := []corev1.PodCondition{
		initialized(in),
		{},
		containersReady(in),
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	own[1] = ready(in, own[2], all)
	for _, c := range own {
		computed[c.Type] = true
	}
	for _, c := range in.patch {
		if !computed[c.Type] {
			all = append(all, in.dated(c))
		}
	}
	for _, c := range own {
		all = append(all, in.dated(c))
	}
	return all
}

// dated sets the generation and the time of the last change of status.
func (in conditionInput) dated(c corev1.PodCondition) corev1.PodCondition {
	if c.ObservedGeneration == 0 {
		c.ObservedGeneration = in.status.ObservedGeneration
	}
	old := condition(in.current, c.Type)
	switch {
	case old != nil && old.Status == c.Status:
		c.LastTransitionTime = old.LastTransitionTime
	default:
		c.LastTransitionTime = in.now
	}
	c.LastTransitionTime = c.LastTransitionTime.Rfc3339Copy()
	return c
}

func condition(list []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// containersReady is True when every container and sidecar is ready.
func containersReady(in conditionInput) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	if in.status.Phase == corev1.PodFailed {
		c.Reason = reasonFailed
		return c
	}
	if in.status.ContainerStatuses == nil {
		c.Reason = reasonUnknownStatuses
		return c
	}
	var missing, unready []string
	check := func(s *corev1.ContainerStatus, name string) {
		switch {
		case s == nil:
			missing = append(missing, name)
		case !s.Ready:
			unready = append(unready, name)
		}
	}
	for i := range in.pod.Spec.InitContainers {
		if spec := &in.pod.Spec.InitContainers[i]; podspec.IsSidecar(spec) {
			check(containerStatus(in.status.InitContainerStatuses, spec.Name), spec.Name)
		}
	}
	for i := range in.pod.Spec.Containers {
		name := in.pod.Spec.Containers[i].Name
		check(containerStatus(in.status.ContainerStatuses, name), name)
	}
	if in.status.Phase == corev1.PodSucceeded && len(missing) == 0 {
		c.Reason = reasonCompleted
		return c
	}
	if c.Message = listed(missing, unready, "unready"); c.Message != "" {
		c.Reason = reasonNotReady
		return c
	}
	c.Status = corev1.ConditionTrue
	return c
}

// ready is True when the containers are and every readiness gate is.
func ready(in conditionInput, containers corev1.PodCondition, foreign []corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if containers.Status != corev1.ConditionTrue {
		return c
	}
	var problems []string
	for _, gate := range in.pod.Spec.ReadinessGates {
		switch g := condition(foreign, gate.ConditionType); {
		case g == nil:
			problems = append(problems, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.",
				gate.ConditionType))
		case g.Status != corev1.ConditionTrue:
			problems = append(problems, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v",
				gate.ConditionType, g.Status))
		}
	}
	if len(problems) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, reasonGatesNotReady, strings.Join(problems, ", ")
	}
	return c
}

// initialized is True once all init containers are done and the sidecars have started. It stays True when a
// sidecar starts again.
func initialized(in conditionInput) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionFalse}
	if in.status.InitContainerStatuses == nil && len(in.pod.Spec.InitContainers) > 0 {
		c.Reason = reasonUnknownStatuses
		return c
	}
	var missing, incomplete []string
	for i := range in.pod.Spec.InitContainers {
		spec := &in.pod.Spec.InitContainers[i]
		s := containerStatus(in.status.InitContainerStatuses, spec.Name)
		switch {
		case s == nil:
			missing = append(missing, spec.Name)
		case podspec.IsSidecar(spec) && (s.Started == nil || !*s.Started), !podspec.IsSidecar(spec) && !s.Ready:
			incomplete = append(incomplete, spec.Name)
		}
	}
	if in.status.Phase == corev1.PodSucceeded && len(missing) == 0 {
		c.Status, c.Reason = corev1.ConditionTrue, reasonCompleted
		return c
	}
	message := listed(missing, incomplete, "incomplete")
	if old := condition(in.current, c.Type); message == "" || anyStarted(in.status) || old != nil &&
		old.Status == corev1.ConditionTrue {
		c.Status = corev1.ConditionTrue
		return c
	}
	c.Reason, c.Message = reasonNotInitialized, message
	return c
}

// anyStarted reports whether a main container has ever run, which is after initialization.
func anyStarted(s *corev1.PodStatus) bool {
	for _, c := range s.ContainerStatuses {
		if c.Started != nil && *c.Started || c.State.Running != nil || c.State.Terminated != nil ||
			c.LastTerminationState.Terminated != nil {
			return true
		}
	}
	return false
}

func listed(missing, others []string, adjective string) string {
	var parts []string
	if len(missing) > 0 {
		parts = append(parts, fmt.Sprintf("containers with unknown status: %s", missing))
	}
	if len(others) > 0 {
		parts = append(parts, fmt.Sprintf("containers with %s status: %s", adjective, others))
	}
	return strings.Join(parts, ", ")
}
