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

// latest is the newest container of that name in any sandbox, or nil.
func (s *situation) latest(name string) *topic.Container {
	for i := range s.obs.Containers {
		if s.obs.Containers[i].Name == name {
			return &s.obs.Containers[i]
		}
	}
	return nil
}

// current is the newest container of that name in the usable sandbox, or nil.
func (s *situation) current(name string) *topic.Container {
	for i := range s.obs.Containers {
		c := &s.obs.Containers[i]
		if c.Name == name && s.sandbox != nil && c.SandboxID == s.sandbox.ID {
			return c
		}
	}
	return nil
}

func (s *situation) isInit(name string) bool {
	return slices.ContainsFunc(s.Pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

func (s *situation) isEphemeral(name string) bool {
	return slices.ContainsFunc(s.Pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
		return c.Name == name
	})
}
