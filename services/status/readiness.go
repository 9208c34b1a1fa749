package status

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// Probes are a pod's probe verdicts by container name and probe kind.
type Probes map[string]map[string]topic.Probe

// verdict is what a probe says of one container ID.
type verdict int

const (
	unknown verdict = iota
	failure
	success
)

// of is the verdict on this very container; one on its predecessor says nothing.
func (p Probes) of(container, kind, containerID string) verdict {
	probe, ok := p[container][kind]
	if !ok || containerID == "" || probe.ContainerID != bareID(containerID) {
		return unknown
	}
	if probe.Success {
		return success
	}
	return failure
}

// bareID is the runtime's ID without the "containerd://" that a pod's status puts before it.
func bareID(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}
	return id
}

// mergeReadiness sets the started and ready flags of all containers. A container that has a probe without a
// verdict keeps the flags that the API server has for the same container ID.
func mergeReadiness(s *corev1.PodStatus, pod *corev1.Pod, probes Probes, current corev1.PodStatus) {
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		spec := containerSpec(pod.Spec.Containers, c.Name)
		setReadiness(c, spec, probes, containerStatus(current.ContainerStatuses, c.Name))
	}
	for i := range s.InitContainerStatuses {
		c := &s.InitContainerStatuses[i]
		spec := containerSpec(pod.Spec.InitContainers, c.Name)
		setReadiness(c, spec, probes, containerStatus(current.InitContainerStatuses, c.Name))
		if spec != nil && !podspec.IsSidecar(spec) {
			// An ordinary init container is ready when it is done.
			c.Ready = c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
		}
	}
	for i := range s.EphemeralContainerStatuses {
		s.EphemeralContainerStatuses[i].Ready, s.EphemeralContainerStatuses[i].Started = false, nil
	}
}

func setReadiness(c *corev1.ContainerStatus, spec *corev1.Container, probes Probes, old *corev1.ContainerStatus) {
	if spec == nil {
		spec = &corev1.Container{}
	}
	wasStarted, wasReady := false, false
	if old != nil && old.ContainerID == c.ContainerID && old.State.Running != nil {
		wasStarted, wasReady = old.Started != nil && *old.Started, old.Ready
	}
	running := c.State.Running != nil
	started := running && holds(spec.StartupProbe, probes.of(c.Name, topic.ProbeStartup, c.ContainerID), wasStarted)
	c.Started = &started
	c.Ready = started && holds(spec.ReadinessProbe, probes.of(c.Name, topic.ProbeReadiness, c.ContainerID), wasReady)
}

// holds reports whether what the probe checks is true. Without a probe it always is; without a verdict it is as before.
func holds(probe *corev1.Probe, v verdict, before bool) bool {
	switch {
	case probe == nil || v == success:
		return true
	case v == failure:
		return false
	default:
		return before
	}
}

func containerSpec(containers []corev1.Container, name string) *corev1.Container {
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}
