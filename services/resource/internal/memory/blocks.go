package memory

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Block is memory of one type that a container has.
type Block struct {
	// Nodes are the NUMA nodes that it comes from, ascending.
	Nodes []int
	Type  corev1.ResourceName
	// Size is in bytes. It is 0 for an init container whose memory later containers of the pod have taken over.
	Size uint64
}

// Entries are the blocks of containers, by pod UID and container name.
type Entries map[string]map[string][]Block

// Snapshot is what a state file has of the memory manager.
type Snapshot struct {
	Nodes   map[int]NodeState
	Entries Entries
}

// clone is a copy of its own of the blocks; nil of nil.
func clone(blocks []Block) []Block {
	c := slices.Clone(blocks)
	for i := range c {
		c[i].Nodes = slices.Clone(c[i].Nodes)
	}
	return c
}

// Blocks are what the container has, in the order of types; nil if it has nothing.
func (s *State) Blocks(uid, container string) []Block { return clone(s.entries[uid][container]) }

// MemoryNodes are the NUMA nodes of all that the container has, for its cpuset.mems; nil if it has nothing.
func (s *State) MemoryNodes(uid, container string) []int {
	var nodes mask
	for _, b := range s.entries[uid][container] {
		m, _ := maskOf(b.Nodes)
		nodes |= m
	}
	if nodes == 0 {
		return nil
	}
	return nodes.nodes()
}

// Pods are the UIDs of the pods that have something, in their order.
func (s *State) Pods() []string { return slices.Sorted(maps.Keys(s.entries)) }

// Snapshot is a copy of the state. It is empty under the policy None.
func (s *State) Snapshot() Snapshot {
	c := Snapshot{Nodes: map[int]NodeState{}, Entries: Entries{}}
	for id, n := range s.nodes {
		memory := make(map[corev1.ResourceName]Table, len(n.memory))
		for name, t := range n.memory {
			memory[name] = *t
		}
		c.Nodes[id] = NodeState{Assignments: n.assignments, Memory: memory, Cells: slices.Clone(n.cells)}
	}
	for uid, containers := range s.entries {
		c.Entries[uid] = make(map[string][]Block, len(containers))
		for name, blocks := range containers {
			c.Entries[uid][name] = clone(blocks)
		}
	}
	return c
}

// set notes what a container has.
func (s *State) set(uid, container string, blocks []Block) {
	if s.entries[uid] == nil {
		s.entries[uid] = map[string][]Block{}
	}
	s.entries[uid][container] = blocks
}

// take takes a block's memory, less what is reused, from the first of its nodes that has some. Each of the nodes counts
// the block, so that the group stays together as long as one container uses it.
func (m machine) take(b Block, reused uint64) {
	left := b.Size - min(reused, b.Size)
	for _, id := range b.Nodes {
		n := m[id]
		n.assignments++
		n.cells = b.Nodes
		if t := n.memory[b.Type]; t != nil {
			size := min(left, t.Free)
			t.Free -= size
			t.Reserved += size
			left -= size
		}
	}
}

// give gives a block's memory back. Which node of a group it is counted at doesn't matter while the group is used, and
// the last container of a group gives back all of it.
func (m machine) give(b Block) {
	left := b.Size
	for _, id := range b.Nodes {
		n := m[id]
		n.assignments--
		if n.assignments == 0 {
			n.cells = []int{id}
		}
		if t := n.memory[b.Type]; t != nil {
			size := min(left, t.Reserved)
			t.Free += size
			t.Reserved -= size
			left -= size
		}
	}
}

// Release gives back what the pod's containers have, and reports whether they had anything.
func (s *State) Release(uid string) bool {
	had := len(s.entries[uid]) > 0
	for _, container := range slices.Sorted(maps.Keys(s.entries[uid])) {
		s.release(uid, container)
	}
	return had
}

// Starting gives back what earlier init containers of the pod have and no later one has taken over: they have ended. It
// reports whether anything has changed.
func (s *State) Starting(pod *corev1.Pod, container string) bool {
	changed := false
	for _, name := range endedBefore(pod, container) {
		changed = s.release(string(pod.UID), name) || changed
	}
	return changed
}

func (s *State) release(uid, container string) bool {
	blocks, ok := s.entries[uid][container]
	if !ok {
		return false
	}
	delete(s.entries[uid], container)
	if len(s.entries[uid]) == 0 {
		delete(s.entries, uid)
	}
	for _, b := range blocks {
		s.nodes.give(b)
	}
	return true
}
