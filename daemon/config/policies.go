package config

import kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

// Exclusive reports whether pods get CPUs or memory of their own, or are aligned to NUMA nodes: under a CPU, memory or
// topology manager's policy other than none. Then each pod waits for the resource daemon.
func Exclusive(k *kubeletv1beta1.KubeletConfiguration) bool {
	on := func(policy, none string) bool { return policy != "" && policy != none }
	return on(k.CPUManagerPolicy, "none") || on(k.MemoryManagerPolicy, kubeletv1beta1.NoneMemoryManagerPolicy) ||
		on(k.TopologyManagerPolicy, kubeletv1beta1.NoneTopologyManagerPolicy)
}
