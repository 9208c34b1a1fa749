// Package invent makes machines and other things up, for both sides of a comparison.
package invent

import (
	"math/rand/v2"

	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/utils/cpuset"

	"kubelot.dev/compared/machine"
)

// Machine is a machine whose sockets, NUMA nodes and cores are all alike, with as many nodes as allowed at most.
func Machine(r *rand.Rand, most int) machine.Topology {
	sockets := 1 + r.IntN(min(4, most))
	perSocket := 1 + r.IntN(max(1, most/sockets))
	socketsPerNode := 1
	if perSocket == 1 && sockets%2 == 0 && r.IntN(3) == 0 {
		socketsPerNode = 2
	}
	threads := []int{1, 2, 2, 2, 4}[r.IntN(5)]
	caches := 1 + r.IntN(3) // per NUMA node and socket; 0 further down stands for one per socket
	cores := caches * (1 + r.IntN(4))
	if r.IntN(3) == 0 {
		caches = 0
	}
	all := sockets * perSocket * cores
	adjacent, interleaved := r.IntN(3) == 0, r.IntN(3) == 0
	m := machine.Topology{CPUs: map[int]machine.CPU{}}
	for i := range all {
		// i counts the cores by place; id is where their numbers begin.
		socket := i / (perSocket * cores)
		node := i / cores / socketsPerNode
		cache := socket
		if caches > 0 {
			cache = i / (cores / caches)
		}
		id := i
		if interleaved {
			id = i%(perSocket*cores)*sockets + socket
		}
		ids := make([]int, threads)
		for t := range threads {
			ids[t] = id + t*all
			if adjacent {
				ids[t] = id*threads + t
			}
		}
		for _, cpu := range ids {
			m.CPUs[cpu] = machine.CPU{Socket: socket, Node: node, Cache: cache, Core: ids[0]}
		}
	}
	for _, id := range m.Places(machine.NUMANode) {
		m.Nodes = append(m.Nodes, machine.Node{ID: id})
	}
	return m
}

// Upstream is the machine as Kubernetes has it.
func Upstream(m machine.Topology) *topology.CPUTopology {
	t := &topology.CPUTopology{
		NumCPUs: len(m.CPUs), NumCores: len(m.Places(machine.Core)), NumUncoreCache: len(m.Places(machine.UncoreCache)),
		NumSockets: len(m.Places(machine.Socket)), NumNUMANodes: len(m.Places(machine.NUMANode)),
		CPUDetails: topology.CPUDetails{},
	}
	for id, c := range m.CPUs {
		t.CPUDetails[id] = topology.CPUInfo{
			NUMANodeID: c.Node, SocketID: c.Socket, CoreID: c.Core,
			UncoreCacheID: c.Cache,
		}
	}
	return t
}

// Product is Kubernetes' machine as kubelot has it.
func Product(t *topology.CPUTopology) machine.Topology {
	m := machine.Topology{CPUs: map[int]machine.CPU{}}
	for id, c := range t.CPUDetails {
		m.CPUs[id] = machine.CPU{Socket: c.SocketID, Node: c.NUMANodeID, Cache: c.UncoreCacheID, Core: c.CoreID}
	}
	for _, id := range m.Places(machine.NUMANode) {
		m.Nodes = append(m.Nodes, machine.Node{ID: id})
	}
	return m
}

// Available is part of the machine's CPUs: mostly whole places are in use, and some threads besides, unless only whole
// cores are.
func Available(r *rand.Rand, m machine.Topology, wholeCores bool) cpuset.CPUSet {
	free := m.All()
	for _, l := range []machine.Level{machine.Socket, machine.NUMANode, machine.UncoreCache, machine.Core} {
		for _, place := range m.Places(l) {
			if r.IntN(8) == 0 {
				free = free.Difference(m.In(l, place))
			}
		}
	}
	if !wholeCores {
		for _, id := range free.List() {
			if r.IntN(8) == 0 {
				free = free.Difference(cpuset.New(id))
			}
		}
	}
	return free
}
