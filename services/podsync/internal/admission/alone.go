package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/admission/allocation"
	"kubelot.dev/services/podsync/internal/node/qos"
)

// Policies are those by which containers get CPUs and memory of their own (KubeletConfiguration.cpuManagerPolicy,
// memoryManagerPolicy and topologyManagerPolicy).
type Policies struct{ CPU, Memory, Topology string }

// The policies under which no pod has CPUs or memory of its own.
const (
	noPolicy       = "none"
	noMemoryPolicy = "None"
)

// any reports whether each pod has to ask.
func (p Policies) any() bool {
	return p.CPU != noPolicy && p.CPU != "" || p.Memory != noMemoryPolicy && p.Memory != "" ||
		p.Topology != noPolicy && p.Topology != ""
}

// AsksForItself reports whether the pod may get something for itself, so that it must wait for the resource daemon's
// word: devices of plugins, claims, CPUs or memory.
func AsksForItself(pod *corev1.Pod, p Policies) bool {
	if p.any() || len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil {
		return true
	}
	asks := false
	allocation.Each(&pod.Spec, func(c *corev1.Container) {
		for name := range c.Resources.Limits {
			asks = asks || !native(name)
		}
	})
	return asks
}

// Unresizable is why the pod can't get other resources while it runs; empty if it can. What it has for itself was
// chosen for its size.
func (p Policies) Unresizable(pod *corev1.Pod) string {
	if qos.Class(pod) != corev1.PodQOSGuaranteed {
		return ""
	}
	const text = "Resize is infeasible for Guaranteed Pods alongside %s Manager policy %q"
	switch {
	case p.CPU == "static":
		return fmt.Sprintf(text, "CPU", p.CPU)
	case p.Memory == "Static":
		return fmt.Sprintf(text, "Memory", p.Memory)
	}
	return ""
}
