package resource

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"kubelot.dev/daemon/config"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/memory"
	"kubelot.dev/services/resource/internal/numa"
)

// newHoldings reads what the configuration and the machine say. An error says what to change in the configuration.
func newHoldings(cfg *config.Config, started time.Time) (*holdings, error) {
	topology, err := machine.Read("/")
	if err != nil {
		return nil, fmt.Errorf("read the machine's CPUs and memory: %w", err)
	}
	k := &cfg.Kubelet
	h := &holdings{
		devices: devices.New(started), policies: policies{cpu: k.CPUManagerPolicy, memory: k.MemoryManagerPolicy},
	}
	for _, n := range topology.Nodes {
		h.nodes = append(h.nodes, n.ID)
	}
	if h.policy, err = numa.New(numa.Config{
		Policy: k.TopologyManagerPolicy, Scope: k.TopologyManagerScope, Options: k.TopologyManagerPolicyOptions,
		Nodes: topology.Nodes,
	}); err != nil {
		return nil, fmt.Errorf("topology manager: %w", err)
	}
	if h.cpus, err = newCPUs(cfg, topology); err != nil {
		return nil, fmt.Errorf("CPU manager: %w", err)
	}
	if h.memory, err = newMemory(cfg, topology); err != nil {
		return nil, fmt.Errorf("memory manager: %w", err)
	}
	return h, nil
}

func newCPUs(cfg *config.Config, topology machine.Topology) (*cpus.State, error) {
	k := &cfg.Kubelet
	reserved, err := cpuset.Parse(k.ReservedSystemCPUs)
	if err != nil {
		return nil, fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	gate := func(name string, byDefault bool) bool {
		if on, set := k.FeatureGates[name]; set {
			return on
		}
		return byDefault
	}
	amount := config.Reserved(k)[corev1.ResourceCPU]
	return cpus.New(cpus.Config{
		Machine: topology, Policy: k.CPUManagerPolicy, Options: k.CPUManagerPolicyOptions,
		AlphaOptions:   gate("CPUManagerPolicyAlphaOptions", false),
		BetaOptions:    gate("CPUManagerPolicyBetaOptions", true),
		TopologyPolicy: k.TopologyManagerPolicy, Reserved: reserved, ReservedMilli: amount.MilliValue(),
	})
}

func newMemory(cfg *config.Config, topology machine.Topology) (*memory.State, error) {
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
	if k.MemoryManagerPolicy == memory.PolicyNone {
		return memory.New(k.MemoryManagerPolicy, nodes, nil)
	}
	reserved, err := memory.CheckReserved(nodes, config.HeldBack(k, corev1.ResourceList{
		corev1.ResourceMemory: config.Bytes(total),
	}), k.ReservedMemory)
	if err != nil {
		return nil, err
	}
	return memory.New(k.MemoryManagerPolicy, nodes, reserved)
}
