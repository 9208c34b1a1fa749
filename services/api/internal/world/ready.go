package world

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// complete adds to a computed status what only others know: probes the started and ready flags, from which conditions follow, and the
// API server since when those hold and why. (What goes to the API server is the status daemon's; this is for readers on the node.)
func (w *World) complete(pod *corev1.Pod, s corev1.PodStatus) corev1.PodStatus {
	s = w.withReadiness(pod, *s.DeepCopy())
	setCondition(&s, corev1.PodScheduled, corev1.ConditionTrue)
	setCondition(&s, corev1.PodInitialized, initialized(pod, &s))
	for _, reported := range pod.Status.Conditions {
		i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == reported.Type })
		switch {
		case i < 0 && !topic.NodeOwned(reported.Type):
			s.Conditions = append(s.Conditions, reported)
		case i >= 0 && s.Conditions[i].Status == reported.Status:
			c := s.Conditions[i]
			reported.Reason, reported.Message = cmp.Or(c.Reason, reported.Reason), cmp.Or(c.Message, reported.Message)
			reported.ObservedGeneration = max(c.ObservedGeneration, reported.ObservedGeneration)
			s.Conditions[i] = reported
		}
	}
	return s
}

// initialized is true once the init containers are done and the sidecars have started, and from then on.
func initialized(pod *corev1.Pod, s *corev1.PodStatus) corev1.ConditionStatus {
	left := len(pod.Spec.InitContainers)
	for _, c := range s.InitContainerStatuses {
		if c.Ready || c.Started != nil && *c.Started {
			left--
		}
	}
	began := func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil || c.LastTerminationState.Terminated != nil
	}
	if left > 0 && !slices.ContainsFunc(s.ContainerStatuses, began) {
		return corev1.ConditionFalse
	}
	return corev1.ConditionTrue
}

// withReadiness sets the flags and the conditions that the probes' verdicts decide.
func (w *World) withReadiness(pod *corev1.Pod, s corev1.PodStatus) corev1.PodStatus {
	all := corev1.ConditionTrue
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		w.setReady(pod, c)
		if !c.Ready {
			all = corev1.ConditionFalse
		}
	}
	for i := range s.InitContainerStatuses {
		c := &s.InitContainerStatuses[i]
		w.setReady(pod, c)
		c.Ready = c.Ready || c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
	}
	if len(s.ContainerStatuses) < len(pod.Spec.Containers) || s.Phase != corev1.PodRunning {
		all = corev1.ConditionFalse
	}
	setCondition(&s, corev1.ContainersReady, all)
	for _, gate := range pod.Spec.ReadinessGates {
		open := func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		}
		if !slices.ContainsFunc(pod.Status.Conditions, open) {
			all = corev1.ConditionFalse
		}
	}
	setCondition(&s, corev1.PodReady, all)
	return s
}

func (w *World) setReady(pod *corev1.Pod, c *corev1.ContainerStatus) {
	spec := Pod{Pod: pod}.SpecOf(c.Name)
	if spec == nil || c.State.Running == nil {
		return
	}
	holds := func(probe *corev1.Probe, kind string) bool {
		verdict, ok := w.Probes[strings.Join([]string{string(pod.UID), c.Name, kind}, ".")]
		return probe == nil || ok && verdict.Success && verdict.ContainerID == BareID(c.ContainerID)
	}
	started := holds(spec.StartupProbe, topic.ProbeStartup)
	c.Started, c.Ready = &started, started && holds(spec.ReadinessProbe, topic.ProbeReadiness)
}

func setCondition(s *corev1.PodStatus, kind corev1.PodConditionType, status corev1.ConditionStatus) {
	i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind})
		i = len(s.Conditions) - 1
	}
	s.Conditions[i].Status = status
}
