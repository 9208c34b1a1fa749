package machine

import (
	"cmp"
	"slices"

	"k8s.io/utils/cpuset"
)

// Level is a kind of place that a CPU is in.
type Level int

// Levels are what CPUs are grouped by.
const (
	// Socket is a physical package.
	Socket Level = iota
	// NUMANode is a node of memory with the CPUs that are near to it.
	NUMANode
	// UncoreCache is a last-level cache (L3) that part of a NUMA node shares, elsewhere the socket.
	UncoreCache
	// Core is a physical core, whose CPUs are its threads.
	Core
)

// CPU is where a logical CPU is.
type CPU struct {
	Socket int
	Node   int
	// Cache is the ID of the uncore cache: unique on the machine.
	Cache int
	// Core is the lowest CPU of the core: the kernel's core IDs are unique in a socket only.
	Core int
}

// At is the ID of the place of a level that the CPU is in.
func (c CPU) At(l Level) int {
	switch l {
	case Socket:
		return c.Socket
	case NUMANode:
		return c.Node
	case UncoreCache:
		return c.Cache
	default:
		return c.Core
	}
}

// Node is a NUMA node, with CPUs or without.
type Node struct {
	ID          int
	MemoryBytes uint64
	// HugePages is the number of preallocated pages by their size in KiB.
	HugePages map[uint64]uint64
	// Distances are those to all nodes, by ID, 10 being the node's own; nil where the machine doesn't say.
	Distances map[int]uint64
}

// Topology is a machine: its CPUs that are online, by number, and its NUMA nodes in the order of their IDs.
type Topology struct {
	CPUs  map[int]CPU
	Nodes []Node
}

// All are the machine's CPUs.
func (t Topology) All() cpuset.CPUSet {
	all := make([]int, 0, len(t.CPUs))
	for id := range t.CPUs {
		all = append(all, id)
	}
	return cpuset.New(all...)
}

// In are the CPUs in any of the places.
func (t Topology) In(l Level, places ...int) cpuset.CPUSet {
	var in []int
	for id, cpu := range t.CPUs {
		if slices.Contains(places, cpu.At(l)) {
			in = append(in, id)
		}
	}
	return cpuset.New(in...)
}

// Places are the IDs, in order, of the places of a level that have CPUs.
func (t Topology) Places(l Level) []int {
	return t.PlacesOf(t.All(), l)
}

// PlacesOf are the IDs, in order, of the places of a level that the CPUs are in. CPUs that aren't the machine's are
// nowhere.
func (t Topology) PlacesOf(cpus cpuset.CPUSet, l Level) []int {
	tally := t.Tally(cpus, l)
	places := make([]int, 0, len(tally))
	for id := range tally {
		places = append(places, id)
	}
	slices.Sort(places)
	return places
}

// Tally is how many of the CPUs each place of a level has. CPUs that aren't the machine's don't count.
func (t Topology) Tally(cpus cpuset.CPUSet, l Level) map[int]int {
	n := map[int]int{}
	for _, id := range cpus.UnsortedList() {
		if cpu, ok := t.CPUs[id]; ok {
			n[cpu.At(l)]++
		}
	}
	return n
}

// CPUsPerCore is how many threads a core has; on machines with cores of several kinds it is the mean, rounded down.
func (t Topology) CPUsPerCore() int {
	cores := len(t.Places(Core))
	if cores == 0 {
		return 0
	}
	return len(t.CPUs) / cores
}

// WholeCores are those of the CPUs whose core is among them with all its threads.
func (t Topology) WholeCores(cpus cpuset.CPUSet) cpuset.CPUSet {
	have, all := t.Tally(cpus, Core), t.Tally(t.All(), Core)
	var whole []int
	for _, id := range cpus.UnsortedList() {
		if cpu, ok := t.CPUs[id]; ok && have[cpu.Core] == all[cpu.Core] {
			whole = append(whole, id)
		}
	}
	return cpuset.New(whole...)
}

// byID orders nodes by their IDs.
func byID(a, b Node) int { return cmp.Compare(a.ID, b.ID) }
