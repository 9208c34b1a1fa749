package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/podspec"
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
	for c := range podspec.InitAndMain(&pod.Spec) {
		for name := range c.Resources.Limits {
			asks = asks || !native(name)
		}
	}
	return asks
}

// Infeasible is why a resize can't be, however much the node has.
type Infeasible struct {
	Message string
	// Detail is the reason in the words of the kubelet's metric.
	Detail string
}

// Infeasible says whether the pod can't get other resources than it holds while it runs; nil if it may. What a
// guaranteed pod has for itself was chosen for its size. A container's share of the swap follows from its request of
// memory, and isn't changed while it runs; swaps reports whether a container has one.
func (p Policies) Infeasible(wanted, held *corev1.Pod, swaps func(*corev1.Pod, *corev1.Container) bool) *Infeasible {
	if swapChanges(wanted, held, swaps) {
		return &Infeasible{"In-place resize of containers with swap is not supported.", "swap_limitation"}
	}
	if podspec.QOSClass(wanted) != corev1.PodQOSGuaranteed {
		return nil
	}
	const text = "Resize is infeasible for Guaranteed Pods alongside %s Manager policy %q"
	switch {
	case p.CPU == "static" && requestChanges(wanted, held, corev1.ResourceCPU):
		return &Infeasible{fmt.Sprintf(text, "CPU", p.CPU), "guaranteed_pod_cpu_manager_static_policy"}
	case p.Memory == "Static" && requestChanges(wanted, held, corev1.ResourceMemory):
		return &Infeasible{fmt.Sprintf(text, "Memory", p.Memory), "guaranteed_pod_memory_manager_static_policy"}
	}
	return nil
}

// requestChanges reports whether a container asks for another amount of the resource than it holds.
func requestChanges(wanted, held *corev1.Pod, name corev1.ResourceName) bool {
	changes := false
	pairs(wanted, held, func(want, has *corev1.Container) {
		q := want.Resources.Requests[name]
		changes = changes || q.Cmp(has.Resources.Requests[name]) != 0
	})
	return changes
}

// swapChanges reports whether a container that has swap, or would have, asks for other memory without being restarted
// for it.
func swapChanges(wanted, held *corev1.Pod, swaps func(*corev1.Pod, *corev1.Container) bool) bool {
	changes := false
	pairs(wanted, held, func(want, has *corev1.Container) {
		q := want.Resources.Requests[corev1.ResourceMemory]
		if q.Cmp(has.Resources.Requests[corev1.ResourceMemory]) != 0 && !restartsForMemory(has) {
			changes = changes || swaps(wanted, want) || swaps(held, has)
		}
	})
	return changes
}

func restartsForMemory(c *corev1.Container) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == corev1.ResourceMemory {
			return p.RestartPolicy == corev1.RestartContainer
		}
	}
	return false
}

// pairs visits the containers of both forms of a pod.
func pairs(wanted, held *corev1.Pod, visit func(want, has *corev1.Container)) {
	has := map[string]*corev1.Container{}
	for c := range podspec.InitAndMain(&held.Spec) {
		has[c.Name] = c
	}
	for c := range podspec.InitAndMain(&wanted.Spec) {
		if before := has[c.Name]; before != nil {
			visit(c, before)
		}
	}
}
