package cpus

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/numa"
)

// SMTAlignmentError refuses a container that can't have whole cores (full-pcpus-only).
type SMTAlignmentError struct {
	// Requested is the number of CPUs asked for, PerCore that of a core.
	Requested, PerCore int
	// Short is set if the number is right, and only Available CPUs are in cores that are free.
	Short     bool
	Available int
}

// Error is the message of the pod's status.
func (e SMTAlignmentError) Error() string {
	if e.Short {
		return fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, "+
			"requested CPUs = %d, CPUs per core = %d", e.Available, e.Requested, e.PerCore)
	}
	return fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", e.Requested, e.PerCore)
}

// Reason is the reason of the pod's status.
func (SMTAlignmentError) Reason() string { return "SMTAlignmentError" }

// Allocate gives a container the CPUs that it has for itself, those of the affinity's NUMA nodes first; without nodes,
// any will do. A container that has CPUs already keeps them. One that is to share with others gets none.
//
// An error is an SMTAlignmentError, or says that there are too few CPUs.
func (s *State) Allocate(pod *corev1.Pod, container *corev1.Container, affinity numa.Mask) (cpuset.CPUSet, error) {
	count := wanted(pod, container)
	if !s.static || count == 0 {
		return cpuset.New(), nil
	}
	if has, ok := s.Exclusive(pod.UID, container.Name); ok {
		return has, nil
	}
	free := s.free(pod)
	if err := s.whole(count, free.Size()); err != nil {
		return cpuset.New(), err
	}
	cpus, err := s.choose(free, count, affinity)
	if err != nil {
		return cpuset.New(), err
	}
	if s.options.fullCores && s.machine.WholeCores(cpus).Size() != count {
		// Where cores have one thread or several, a number may be right and no cores add up to it.
		return cpuset.New(), SMTAlignmentError{Requested: count, PerCore: s.perCore(), Short: true, Available: free.Size()}
	}
	if s.entries[pod.UID] == nil {
		s.entries[pod.UID] = map[string]cpuset.CPUSet{}
	}
	s.entries[pod.UID][container.Name] = cpus
	s.shared = s.shared.Difference(cpus)
	return cpus, nil
}

// Release takes back all CPUs of a pod and answers which they were.
func (s *State) Release(pod types.UID) cpuset.CPUSet {
	released := cpuset.New()
	for _, cpus := range s.entries[pod] {
		released = released.Union(cpus)
	}
	delete(s.entries, pod)
	s.shared = s.shared.Union(released)
	return released
}

// free are the CPUs that a container of the pod can get. Where only whole cores are given away, CPUs whose siblings are
// reserved, or somebody's, aren't among them.
func (s *State) free(pod *corev1.Pod) cpuset.CPUSet {
	free := s.Available().Union(s.reusable(pod))
	if s.options.fullCores {
		return s.machine.WholeCores(free)
	}
	return free
}

// whole refuses requests that whole cores can't serve.
func (s *State) whole(count, available int) error {
	perCore := s.perCore()
	switch {
	case !s.options.fullCores:
		return nil
	case count%perCore != 0:
		return SMTAlignmentError{Requested: count, PerCore: perCore}
	case count > available:
		return SMTAlignmentError{Requested: count, PerCore: perCore, Short: true, Available: available}
	default:
		return nil
	}
}

// choose picks CPUs, as many as can be had from the nodes and the rest from anywhere.
func (s *State) choose(free cpuset.CPUSet, count int, affinity numa.Mask) (cpuset.CPUSet, error) {
	near := cpuset.New()
	if affinity != 0 {
		aligned := free.Intersection(s.near(affinity))
		var err error
		if near, err = s.pick(aligned, min(count, aligned.Size())); err != nil {
			return cpuset.New(), err
		}
	}
	rest, err := s.pick(free.Difference(near), count-near.Size())
	if err != nil {
		return cpuset.New(), err
	}
	return near.Union(rest), nil
}

// near are the CPUs of the nodes, or with align-by-socket those of their sockets.
func (s *State) near(nodes numa.Mask) cpuset.CPUSet {
	cpus := s.machine.In(machine.NUMANode, nodes.Nodes()...)
	if s.options.alignSocket {
		return s.machine.In(machine.Socket, s.machine.PlacesOf(cpus, machine.Socket)...)
	}
	return cpus
}
