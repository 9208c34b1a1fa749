package resource

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"kubelot.dev/daemon/config"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/fault"
	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/memory"
	"kubelot.dev/services/resource/internal/numa"
)

// newHoldings makes the holdings of the machine as the configuration says. What is wrong with that is healed: the
// faults are for the daemon's health.
func newHoldings(cfg *config.Config, topology machine.Topology) (*holdings, []fault.Fault) {
	k := &cfg.Kubelet
	h := &holdings{devices: devices.New()}
	for _, n := range topology.Nodes {
		h.nodes = append(h.nodes, n.ID)
		if n.MemoryBytes > 0 {
			h.remembering = append(h.remembering, n.ID)
		}
	}
	var faults []fault.Fault
	add := func(manager string, more []fault.Fault) {
		for _, f := range more {
			f.Why = manager + ": " + f.Why
			faults = append(faults, f)
		}
	}
	policy, wrong := numa.Heal(numa.Config{
		Policy: k.TopologyManagerPolicy, Scope: k.TopologyManagerScope, Options: k.TopologyManagerPolicyOptions,
		Nodes: topology.Nodes,
	})
	h.policy = policy
	add("topology manager", wrong)
	h.cpus, wrong = newCPUs(cfg, topology)
	add("CPU manager", wrong)
	h.memory, wrong = newMemory(cfg, topology)
	add("memory manager", wrong)
	h.policies = policies{cpu: h.cpus.Policy(), memory: h.memory.Policy()}
	return h, faults
}

func newCPUs(cfg *config.Config, topology machine.Topology) (*cpus.State, []fault.Fault) {
	k := &cfg.Kubelet
	var faults []fault.Fault
	reserved, err := cpuset.Parse(k.ReservedSystemCPUs)
	if err != nil {
		faults = []fault.Fault{{
			Why:     fmt.Sprintf("reservedSystemCPUs: %v: set a list such as 0,2-3", err),
			Instead: "it is ignored", Severe: true,
		}}
	}
	amount := config.Reserved(k)[corev1.ResourceCPU]
	state, more := cpus.Heal(cpus.Config{
		Machine: topology, Policy: k.CPUManagerPolicy, Options: k.CPUManagerPolicyOptions,
		AlphaOptions:   config.Enabled(k, config.GateCPUManagerAlphaOptions),
		BetaOptions:    config.Enabled(k, config.GateCPUManagerBetaOptions),
		TopologyPolicy: k.TopologyManagerPolicy, Reserved: reserved, ReservedMilli: amount.MilliValue(),
	})
	return state, append(faults, more...)
}

func newMemory(cfg *config.Config, topology machine.Topology) (*memory.State, []fault.Fault) {
	k := &cfg.Kubelet
	nodes := make([]memory.Node, 0, len(topology.Nodes))
	var total uint64
	for _, n := range topology.Nodes {
		pages := map[uint64]uint64{}
		for kib, count := range n.HugePages {
			pages[kib<<10] = count
		}
		nodes = append(nodes, memory.Node{ID: n.ID, Memory: n.MemoryBytes, HugePages: pages})
		total += n.MemoryBytes
	}
	return memory.Heal(memory.Config{
		Policy: k.MemoryManagerPolicy, Nodes: nodes, Reserved: k.ReservedMemory,
		NodeAllocatable: config.HeldBack(k, corev1.ResourceList{corev1.ResourceMemory: config.Bytes(total)}),
	})
}
