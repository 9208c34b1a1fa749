package cpus

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/numa"
)

// Hints are the sets of NUMA nodes that the container's CPUs can come from; nil if it has none for itself.
func (s *State) Hints(pod *corev1.Pod, container *corev1.Container) numa.ProviderHints {
	count := wanted(pod, container)
	if !s.static || count == 0 {
		return nil
	}
	if has, ok := s.Exclusive(pod.UID, container.Name); ok {
		if has.Size() != count {
			return impossible()
		}
		return s.hints(has, cpuset.New(), count)
	}
	return s.hints(s.free(pod), s.reusable(pod), count)
}

// PodHints are the sets of NUMA nodes that the CPUs of all containers of the pod can come from; nil if it has none for
// itself.
func (s *State) PodHints(pod *corev1.Pod) numa.ProviderHints {
	count := wantedByPod(pod)
	if !s.static || count == 0 {
		return nil
	}
	assigned := cpuset.New()
	for c := range podspec.InitAndMain(&pod.Spec) {
		has, ok := s.Exclusive(pod.UID, c.Name)
		if ok && has.Size() != wanted(pod, c) {
			return impossible()
		}
		assigned = assigned.Union(has)
	}
	if assigned.Size() == count {
		return s.hints(assigned, cpuset.New(), count)
	}
	return s.hints(s.free(pod).Union(assigned), s.reusable(pod).Union(assigned), count)
}

// impossible are the hints of a container that has another number of CPUs than it asks for: all policies but
// best-effort refuse it.
func impossible() numa.ProviderHints { return numa.ProviderHints{string(corev1.ResourceCPU): {}} }

// hints are the sets of nodes on which enough of the CPUs are, and all of those that the pod has already. The smallest
// sets that the machine could serve the request from, were it empty, are preferred.
func (s *State) hints(free, has cpuset.CPUSet, count int) numa.ProviderHints {
	nodes := s.machine.Places(machine.NUMANode)
	size, there := s.machine.Tally(s.machine.All(), machine.NUMANode), s.machine.Tally(free, machine.NUMANode)
	must := numa.NewMask(s.machine.PlacesOf(has, machine.NUMANode)...)
	hints, least := []numa.Hint{}, len(nodes)
	for m := range numa.Masks(nodes) {
		if total(size, m) >= count {
			least = min(least, m.Count())
		}
		if must&^m == 0 && total(there, m) >= count {
			hints = append(hints, numa.Hint{Nodes: m})
		}
	}
	for i, h := range hints {
		hints[i].Preferred = h.Nodes.Count() == least || s.options.alignSocket && s.oneSocket(h.Nodes, least)
	}
	return numa.ProviderHints{string(corev1.ResourceCPU): hints}
}

func total(perNode map[int]int, nodes numa.Mask) int {
	n := 0
	for _, id := range nodes.Nodes() {
		n += perNode[id]
	}
	return n
}

// oneSocket reports whether the nodes are on as few sockets as so many nodes can be.
func (s *State) oneSocket(nodes numa.Mask, least int) bool {
	perSocket := len(s.machine.Places(machine.NUMANode)) / max(1, len(s.machine.Places(machine.Socket)))
	if perSocket == 0 {
		return false
	}
	on := s.machine.PlacesOf(s.machine.In(machine.NUMANode, nodes.Nodes()...), machine.Socket)
	return len(on) == (least+perSocket-1)/perSocket
}
