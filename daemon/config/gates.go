package config

import kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

// Gate is a feature gate of Kubernetes that is a switch in kubelot (featureGates). What any other gate does is fixed.
type Gate string

// The gates, by the names that Kubernetes has for them.
const (
	GateCPUManagerAlphaOptions Gate = "CPUManagerPolicyAlphaOptions"
	GateCPUManagerBetaOptions  Gate = "CPUManagerPolicyBetaOptions"
	// GateNoQuotaWithExclusiveCPUs frees containers with CPUs of their own, and their pods, from CPU quotas.
	GateNoQuotaWithExclusiveCPUs Gate = "DisableCPUQuotaWithExclusiveCPUs"
	// GateListActivePods has the PodResources API leave out pods that are over.
	GateListActivePods Gate = "KubeletPodResourcesListUseActivePods"
	// GateMemoryQoS protects and throttles the memory of pods with cgroup v2 (KEP-2570).
	GateMemoryQoS Gate = "MemoryQoS"
	// GatePodsAPI serves the Pods API (KEP-4188).
	GatePodsAPI Gate = "PodsAPI"
	// GateQOSReserved has qosReserved limit the memory of the lower QoS classes.
	GateQOSReserved Gate = "QOSReserved"
	// GateSELinuxMount has volumes of all access modes mounted with SELinux labels (KEP-1710).
	GateSELinuxMount Gate = "SELinuxMount"
)

// The gates that set all alpha or beta gates which aren't set themselves.
const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// gates are the gates as they are in Kubernetes 1.36: whether each is on by default, and by which gate it is set with
// others.
var gates = map[Gate]struct {
	on  bool
	all string
}{
	GateCPUManagerAlphaOptions:   {false, allAlpha},
	GateCPUManagerBetaOptions:    {true, allBeta},
	GateNoQuotaWithExclusiveCPUs: {true, ""},
	GateListActivePods:           {true, ""},
	GateMemoryQoS:                {false, allAlpha},
	GatePodsAPI:                  {false, allAlpha},
	GateQOSReserved:              {false, allAlpha},
	GateSELinuxMount:             {false, allBeta},
}

// Enabled reports whether the gate is on.
func Enabled(k *kubeletv1beta1.KubeletConfiguration, gate Gate) bool {
	if on, set := k.FeatureGates[string(gate)]; set {
		return on
	}
	g := gates[gate]
	if on, set := k.FeatureGates[g.all]; set && g.all != "" {
		return on
	}
	return g.on
}

// onlySwitches reports whether all gates of the configuration are switches.
func onlySwitches(set map[string]bool) bool {
	for name := range set {
		if _, known := gates[Gate(name)]; !known {
			return false
		}
	}
	return true
}
