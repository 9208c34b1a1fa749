package memory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/cpuset"
)

// Released is a container that doesn't keep what a state file says that it has.
type Released struct {
	// UID is the pod's.
	UID, Container string
	// Why is for the log.
	Why string
}

// Adopt takes over the entries of a state file into a new state. A container keeps all of its blocks or none: those
// that the machine, its reservations or the policy have no place for any more are released.
func (s *State) Adopt(entries Entries) []Released {
	var released []Released
	for _, uid := range slices.Sorted(maps.Keys(entries)) {
		for _, name := range slices.Sorted(maps.Keys(entries[uid])) {
			if why := s.adopt(uid, name, entries[uid][name]); why != "" {
				released = append(released, Released{UID: uid, Container: name, Why: why})
			}
		}
	}
	return released
}

// adopt is why the container doesn't keep the blocks; empty if it does.
func (s *State) adopt(uid, container string, blocks []Block) string {
	if s.policy == PolicyNone {
		return fmt.Sprintf("the memory manager's policy is %s", s.policy)
	}
	if _, ok := s.entries[uid][container]; ok {
		return "it has memory already"
	}
	if len(blocks) == 0 {
		return "its entry is empty"
	}
	trial, kept := s.nodes.clone(), clone(blocks)
	for i := range kept {
		b := &kept[i]
		m, ok := maskOf(b.Nodes)
		if !ok {
			return fmt.Sprintf("%v isn't a set of NUMA nodes", b.Nodes)
		}
		b.Nodes = m.nodes()
		if why := trial.hinders(*b); why != "" {
			return why
		}
		trial.take(*b, 0)
	}
	slices.SortStableFunc(kept, func(a, b Block) int {
		return cmp.Compare(a.Type, b.Type)
	})
	s.nodes = trial
	s.set(uid, container, kept)
	return ""
}

// hinders is why the block has no place; empty if it has.
func (m machine) hinders(b Block) string {
	for _, id := range b.Nodes {
		if m[id] == nil {
			return fmt.Sprintf("the machine has no NUMA node %d", id)
		}
		if m[id].memory[b.Type] == nil {
			return fmt.Sprintf("NUMA node %d has no memory of the type %.80q", id, b.Type)
		}
	}
	nodes := cpuset.New(b.Nodes...).String()
	if !m.open(b.Nodes) {
		return fmt.Sprintf("NUMA node %s is used alone or in another group", nodes)
	}
	if free := m.freeOf(b.Nodes, b.Type); free < b.Size {
		return fmt.Sprintf("it has %d bytes of %s of NUMA node %s, which has %d left", b.Size, b.Type, nodes, free)
	}
	return ""
}
