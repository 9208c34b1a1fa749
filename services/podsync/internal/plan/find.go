package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// Container finds a container of any kind in the pod's spec; nil if there is none of that name.
func Container(pod *corev1.Pod, name string) *corev1.Container {
	for c := range podspec.Containers(&pod.Spec) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// IsSidecar tells whether an init container is a restartable one (KEP-753).
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// latest is the newest container of that name in any sandbox, or nil.
func (p *planner) latest(name string) *topic.Container {
	for i := range p.obs.Containers {
		if p.obs.Containers[i].Name == name {
			return &p.obs.Containers[i]
		}
	}
	return nil
}

// current is the newest container of that name in the usable sandbox, or nil.
func (p *planner) current(name string) *topic.Container {
	for i := range p.obs.Containers {
		c := &p.obs.Containers[i]
		if c.Name == name && p.sandbox != nil && c.SandboxID == p.sandbox.ID {
			return c
		}
	}
	return nil
}

func (p *planner) isInit(name string) bool {
	return slices.ContainsFunc(p.Pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

func (p *planner) isEphemeral(name string) bool {
	return slices.ContainsFunc(p.Pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}
