package memory

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The refusals are in the kubelet's words.
var (
	errNoNodes = errors.New("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory " +
		"is available")
	errNotDefault  = errors.New("[memorymanager] failed to find the default preferred hint")
	errNoExtension = errors.New("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
	errNotExtended = errors.New("[memorymanager] failed to find the extended preferred hint")
	errViolates    = errors.New("[memorymanager] preferred hint violates NUMA node allocation")
)

// Allocate gives a container its memory, from the nodes of the topology manager's affinity, or from more than these
// where they don't have enough. The containers of a pod are to be allocated one after the other, init containers first:
// what plain init containers have is taken over by later containers that have the same nodes.
//
// No blocks and no error are of containers that get nothing of their own. A refusal is for the pod's status; the pod's
// other containers keep what they have until Release.
func (s *State) Allocate(pod *corev1.Pod, container *corev1.Container, affinity Hint) ([]Block, error) {
	if s.policy == PolicyNone || !eligible(pod) {
		return nil, nil
	}
	uid := string(pod.UID)
	if blocks, ok := s.entries[uid][container.Name]; ok {
		return clone(blocks), nil
	}
	if s.hasEnded(pod, container.Name) {
		return nil, nil
	}
	asked, err := containerRequests(container)
	if err != nil {
		return nil, err
	}
	nodes, err := s.choose(asker{pod, container.Name}, asked, affinity)
	if err != nil {
		return nil, err
	}
	var blocks []Block
	for _, name := range asked.types() {
		b := Block{Nodes: nodes, Type: name, Size: asked[name]}
		s.nodes.take(b, s.reusable(asker{pod, container.Name}, nodes, name))
		blocks = append(blocks, b)
	}
	s.set(uid, container.Name, blocks)
	s.takeOver(pod, container.Name, blocks)
	return clone(blocks), nil
}

// hasEnded reports whether an init container without memory has had some and has given it back: main containers of its
// pod have theirs, which they don't get before it. The kubelet allocates for it again when it was restarted.
func (s *State) hasEnded(pod *corev1.Pod, name string) bool {
	return isPlainInit(pod, name) && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		_, ok := s.entries[string(pod.UID)][c.Name]
		return ok
	})
}

// choose are the nodes that the memory comes from.
func (s *State) choose(by asker, asked requests, affinity Hint) ([]int, error) {
	given, ok := maskOf(affinity.Nodes)
	if !ok && len(affinity.Nodes) > 0 {
		return nil, fmt.Errorf("[memorymanager] the affinity %v isn't a set of NUMA nodes", affinity.Nodes)
	}
	chosen := Hint{Nodes: given.nodes(), Preferred: affinity.Preferred}
	if !ok {
		candidates := s.candidates(by, asked)
		if len(asked) == 0 || len(candidates) == 0 {
			return nil, errNoNodes
		}
		if chosen = best(candidates); affinity.Preferred && !chosen.Preferred {
			return nil, errNotDefault
		}
	}
	if s.nodes.partOfGroup(chosen.Nodes) || !s.nodes.has(chosen.Nodes, asked) {
		var err error
		if chosen, err = s.extend(by, asked, chosen); err != nil {
			return nil, err
		}
	}
	if !s.nodes.open(chosen.Nodes) {
		return nil, errViolates
	}
	return chosen.Nodes, nil
}

// extend is the best set of nodes that has those of the hint among it, and what is asked for.
func (s *State) extend(by asker, asked requests, hint Hint) (Hint, error) {
	wider := slices.DeleteFunc(s.candidates(by, asked), func(c Hint) bool { return !within(hint.Nodes, c.Nodes) })
	if len(wider) == 0 {
		return Hint{}, errNoExtension
	}
	extended := best(wider)
	if hint.Preferred && !extended.Preferred {
		return Hint{}, errNotExtended
	}
	return extended, nil
}

// partOfGroup reports whether the nodes are used within a larger group, which can only be used as a whole.
func (m machine) partOfGroup(nodes []int) bool {
	n := m[nodes[0]]
	return n != nil && len(n.cells) > len(nodes) && within(nodes, n.cells)
}

func within(some, all []int) bool {
	return !slices.ContainsFunc(some, func(id int) bool { return !slices.Contains(all, id) })
}

// asker is a container that is to get memory; without a name, it is all containers of the pod.
type asker struct {
	pod       *corev1.Pod
	container string
}

// reusable is what earlier init containers of the pod have of exactly these nodes: they end before the asker starts.
func (s *State) reusable(by asker, nodes []int, name corev1.ResourceName) uint64 {
	var size uint64
	for _, ended := range endedBefore(by.pod, by.container) {
		for _, b := range s.entries[string(by.pod.UID)][ended] {
			if b.Type == name && slices.Equal(b.Nodes, nodes) {
				size += b.Size
			}
		}
	}
	return size
}

// takeOver makes the blocks of earlier init containers smaller by what the container has taken over, so that the blocks
// of all containers together are what the pod has.
func (s *State) takeOver(pod *corev1.Pod, container string, blocks []Block) {
	entries := s.entries[string(pod.UID)]
	for _, b := range blocks {
		left := b.Size
		for _, name := range endedBefore(pod, container) {
			for i := range entries[name] {
				if old := &entries[name][i]; old.Type == b.Type && slices.Equal(old.Nodes, b.Nodes) {
					size := min(old.Size, left)
					old.Size -= size
					left -= size
				}
			}
		}
	}
}
