package cgroups

import (
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/daemon/config"
)

// ConfigOf is what the configuration asks for. The runtime says which driver it uses.
func ConfigOf(k *kubeletv1beta1.KubeletConfiguration) Config {
	c := Config{
		Root:        k.CgroupRoot,
		PerQOS:      k.CgroupsPerQOS == nil || *k.CgroupsPerQOS,
		EnforcePods: enforces(k, "pods"),
		CPUCFSQuota: k.CPUCFSQuota != nil && *k.CPUCFSQuota,
		StaticCPUs:  k.CPUManagerPolicy == "static" && config.Enabled(k, config.GateNoQuotaWithExclusiveCPUs),
		Memory: Protection{
			On:      config.Enabled(k, config.GateMemoryQoS),
			Tiered:  k.MemoryReservationPolicy == kubeletv1beta1.TieredReservationMemoryReservationPolicy,
			Percent: config.QOSReserved(k),
		},
	}
	if p := k.CPUCFSQuotaPeriod; p != nil {
		c.CPUCFSQuotaPeriod = p.Duration
	}
	if p := k.PodPidsLimit; p != nil {
		c.PodPidsLimit = *p
	}
	return c
}

// ReservedOf are the cgroups that the configuration limits to the resources reserved for them.
func ReservedOf(k *kubeletv1beta1.KubeletConfiguration) []Reserved {
	var all []Reserved
	for _, r := range []struct {
		name, cgroup string
		list         map[string]string
	}{
		{"system-reserved", k.SystemReservedCgroup, k.SystemReserved},
		{"kube-reserved", k.KubeReservedCgroup, k.KubeReserved},
	} {
		compressible := enforces(k, r.name+"-compressible")
		if compressible || enforces(k, r.name) {
			all = append(all, Reserved{
				Name: r.name, Cgroup: r.cgroup, List: config.Resources(r.list), Compressible: compressible,
			})
		}
	}
	return all
}

// enforces reports whether enforceNodeAllocatable has an entry.
func enforces(k *kubeletv1beta1.KubeletConfiguration, what string) bool {
	for _, item := range k.EnforceNodeAllocatable {
		if strings.EqualFold(item, what) {
			return true
		}
	}
	return false
}
