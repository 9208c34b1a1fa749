package memory

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/services/resource/internal/fault"
)

// Config is what the kubelet's configuration and the machine say.
type Config struct {
	// Policy is memoryManagerPolicy.
	Policy string
	Nodes  []Node
	// Reserved is reservedMemory, and NodeAllocatable what Node Allocatable holds back.
	Reserved        []kubeletv1beta1.MemoryReservation
	NodeAllocatable corev1.ResourceList
}

// Heal makes a state for any configuration. Reservations that don't add up keep their sizes, as far as the machine has
// them, so that containers keep their memory; else what Node Allocatable holds back is reserved on the first node that
// has it. A policy that nobody knows is none.
func Heal(cfg Config) (*State, []fault.Fault) {
	if cfg.Policy != PolicyStatic {
		s, err := New(cfg.Policy, cfg.Nodes, nil)
		if err == nil {
			return s, nil
		}
		return nothing(err)
	}
	reserved, err := checkReserved(cfg.Nodes, cfg.NodeAllocatable, cfg.Reserved)
	var s *State
	if err == nil {
		if s, err = New(cfg.Policy, cfg.Nodes, reserved); err == nil {
			return s, nil
		}
	}
	f := fault.Fault{Why: err.Error() + ": change reservedMemory", Severe: true}
	f.Instead = "what reservedMemory says of the NUMA nodes that are there is reserved"
	if s, err = New(cfg.Policy, cfg.Nodes, possible(cfg)); err == nil {
		return s, []fault.Fault{f}
	}
	held := amount(cfg.NodeAllocatable, corev1.ResourceMemory)
	size, _ := sizeOf(held)
	for _, n := range cfg.Nodes {
		if s, err = New(cfg.Policy, cfg.Nodes, Reserved{n.ID: {corev1.ResourceMemory: size}}); err == nil {
			f.Instead = held.String() + ", as by Node Allocatable, is reserved on one NUMA node"
			return s, []fault.Fault{f}
		}
	}
	s, faults := nothing(err)
	return s, append([]fault.Fault{f}, faults...)
}

// nothing is the policy None instead of one that can't be.
func nothing(err error) (*State, []fault.Fault) {
	s, _ := New(PolicyNone, nil, nil)
	return s, []fault.Fault{{
		Why: err.Error() + ": change memoryManagerPolicy or reservedMemory", Instead: "no container gets memory of its own",
		Severe: true,
	}}
}

// possible are the reservations of nodes that are there.
func possible(cfg Config) Reserved {
	there := slices.DeleteFunc(slices.Clone(cfg.Reserved), func(r kubeletv1beta1.MemoryReservation) bool {
		return !slices.ContainsFunc(cfg.Nodes, func(n Node) bool { return n.ID == int(r.NumaNode) })
	})
	sums, err := sum(cfg.Nodes, there)
	if err != nil {
		return nil
	}
	reserved, err := checkReserved(cfg.Nodes, sums, there)
	if err != nil {
		return nil
	}
	return reserved
}
