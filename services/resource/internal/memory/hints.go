package memory

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/podspec"
)

// Hint is a set of NUMA nodes that a container's memory may come from.
type Hint struct {
	// Nodes are ascending. An affinity without nodes leaves the choice to the memory manager.
	Nodes []int
	// Preferred hints are of as few nodes as could ever hold what is asked for.
	Preferred bool
}

// Hints are where the container's memory may come from, by type; all types have the same. Nil is no preference. A map
// without a type is that nothing fits: to the topology manager that is no preference either, and Allocate refuses.
func (s *State) Hints(pod *corev1.Pod, container *corev1.Container) map[corev1.ResourceName][]Hint {
	asked, err := containerRequests(container)
	if err != nil || s.policy == PolicyNone || !eligible(pod) {
		return nil
	}
	if blocks, ok := s.entries[string(pod.UID)][container.Name]; ok {
		return hintsOf(blocks, asked)
	}
	if s.hasEnded(pod, container.Name) {
		return nil
	}
	return byType(s.candidates(asker{pod, container.Name}, asked), asked)
}

// PodHints are where the memory of all containers of the pod together may come from, as Hints.
func (s *State) PodHints(pod *corev1.Pod) map[corev1.ResourceName][]Hint {
	asked, err := podRequests(pod)
	if err != nil || len(asked) == 0 || s.policy == PolicyNone || !eligible(pod) {
		return nil
	}
	for c := range podspec.InitAndMain(&pod.Spec) {
		if blocks, ok := s.entries[string(pod.UID)][c.Name]; ok {
			return hintsOf(blocks, asked)
		}
	}
	return byType(s.candidates(asker{pod: pod}, asked), asked)
}

// hintsOf are the hints of what a container has already: nil where it isn't what is asked for.
func hintsOf(blocks []Block, asked requests) map[corev1.ResourceName][]Hint {
	if len(blocks) != len(asked) {
		return nil
	}
	hints := map[corev1.ResourceName][]Hint{}
	for _, b := range blocks {
		if size, ok := asked[b.Type]; !ok || size != b.Size {
			return nil
		}
		hints[b.Type] = append(hints[b.Type], Hint{Nodes: slices.Clone(b.Nodes), Preferred: true})
	}
	return hints
}

func byType(candidates []Hint, asked requests) map[corev1.ResourceName][]Hint {
	hints := map[corev1.ResourceName][]Hint{}
	for name := range asked {
		if len(candidates) > 0 {
			hints[name] = slices.Clone(candidates)
		}
	}
	return hints
}

// candidates are the sets of nodes that have what is asked for free, what the pod may reuse included. Small ones are
// first.
func (s *State) candidates(by asker, asked requests) []Hint {
	fewest := len(s.nodes)
	var hints []Hint
	subsets(s.nodes.ids(), func(m mask) {
		nodes := m.nodes()
		if !s.nodes.could(nodes, asked) {
			return
		}
		fewest = min(fewest, len(nodes))
		if s.nodes.open(nodes) && s.fits(by, nodes, asked) {
			hints = append(hints, Hint{Nodes: nodes})
		}
	})
	for i := range hints {
		hints[i].Preferred = len(hints[i].Nodes) == fewest
	}
	return hints
}

// could reports whether the nodes would have what is asked for if nobody used them.
func (m machine) could(nodes []int, asked requests) bool {
	for name, size := range asked {
		var total uint64
		for _, id := range nodes {
			total += m[id].allocatable(name)
		}
		if total < size {
			return false
		}
	}
	return true
}

// open reports whether the nodes may be used together: nobody uses one of them alone, or within another group.
func (m machine) open(nodes []int) bool {
	for _, id := range nodes {
		n := m[id]
		if n == nil || n.assignments > 0 && !slices.Equal(n.cells, nodes) {
			return false
		}
	}
	return true
}

// has reports whether the nodes have what is asked for free.
func (m machine) has(nodes []int, asked requests) bool {
	for name, size := range asked {
		if m.freeOf(nodes, name) < size {
			return false
		}
	}
	return true
}

func (m machine) freeOf(nodes []int, name corev1.ResourceName) uint64 {
	var total uint64
	for _, id := range nodes {
		if n := m[id]; n != nil {
			total += n.free(name)
		}
	}
	return total
}

// fits reports whether the nodes have what is asked for, what may be reused included.
func (s *State) fits(by asker, nodes []int, asked requests) bool {
	for name, size := range asked {
		if s.nodes.freeOf(nodes, name)+s.reusable(by, nodes, name) < size {
			return false
		}
	}
	return true
}

// best is the preferred one of the fewest nodes, else the one of the fewest; of those of a size, that of the lowest
// mask.
func best(hints []Hint) Hint {
	return slices.MinFunc(hints, func(a, b Hint) int {
		if a.Preferred != b.Preferred {
			if a.Preferred {
				return -1
			}
			return 1
		}
		one, _ := maskOf(a.Nodes)
		other, _ := maskOf(b.Nodes)
		return cmp.Or(cmp.Compare(one.count(), other.count()), cmp.Compare(one, other))
	})
}
