package cpus

import (
	"k8s.io/utils/cpuset"

	"kubelot.dev/compared/machine"
	"kubelot.dev/compared/numa"
)

// Part is a state of which only the machine and some options are there, to try its parts.
func Part(m machine.Topology, alignSocket, alignCaches, acrossNUMA, acrossCores, fullCores bool) *State {
	return &State{machine: m, static: true, options: options{
		alignSocket: alignSocket, alignCaches: alignCaches, acrossNUMA: acrossNUMA, acrossCores: acrossCores,
		fullCores: fullCores,
	}}
}

// HintsFor are the hints for so many of the free CPUs, for a pod that has some already.
func (s *State) HintsFor(free, has cpuset.CPUSet, count int) numa.ProviderHints {
	return s.hints(free, has, count)
}

// Choose chooses among the free CPUs.
func (s *State) Choose(free cpuset.CPUSet, count int, affinity numa.Mask) (cpuset.CPUSet, error) {
	return s.choose(free, count, affinity)
}
