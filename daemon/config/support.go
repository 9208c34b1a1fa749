package config

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Level is what kubelot does with a field of KubeletConfiguration.
type Level string

const (
	// Supported fields do what the kubelet's do.
	Supported Level = "supported"
	// Partly fields do part of what the kubelet's do; a warning names the part that is missing.
	Partly Level = "partly"
	// Moot fields are accepted and have nothing to act on in kubelot; the table says why.
	Moot Level = "moot"
)

// Field is kubelot's answer to one top-level field of KubeletConfiguration.
type Field struct {
	// Path is the field's JSON name.
	Path  string
	Level Level
	// Note completes the warning of a field that isn't supported.
	Note string
}

// Fields is the table of all fields of KubeletConfiguration; a test holds it complete.
var Fields = slices.Concat(
	level(Supported, "",
		"volumeStatsAggPeriod",
		"staticPodPath", "podLogsDir", "fileCheckFrequency", "httpCheckFrequency",
		"staticPodURL", "staticPodURLHeader", "registryPullQPS", "registryBurst", "eventRecordQPS", "eventBurst",
		"clusterDomain", "clusterDNS", "nodeStatusUpdateFrequency", "nodeStatusReportFrequency",
		"nodeLeaseDurationSeconds", "cgroupRoot", "cgroupsPerQOS", "cgroupDriver", "runtimeRequestTimeout",
		"maxPods", "podsPerCore", "podPidsLimit", "resolvConf", "cpuCFSQuota", "cpuCFSQuotaPeriod",
		"nodeStatusMaxImages", "contentType", "kubeAPIQPS", "kubeAPIBurst", "serializeImagePulls",
		"maxParallelImagePulls", "configMapAndSecretChangeDetectionStrategy", "systemReserved", "kubeReserved",
		"enforceNodeAllocatable", "allowedUnsafeSysctls", "providerID", "logging", "crashLoopBackOff",
		"seccompDefault", "registerWithTaints", "registerNode", "containerRuntimeEndpoint",
		"imageServiceEndpoint", "evictionHard", "mergeDefaultEvictionSettings",
		"failCgroupV1", "userNamespaces", "reservedSystemCPUs", "memorySwap", "singleProcessOOMKill",
		"localStorageCapacityIsolation", "rotateCertificates", "failSwapOn", "protectKernelDefaults", "systemReservedCgroup",
		"kubeReservedCgroup",
		"imageMinimumGCAge", "imageMaximumGCAge", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent",
		"evictionSoft", "evictionSoftGracePeriod", "evictionPressureTransitionPeriod", "evictionMaxPodGracePeriod",
		"evictionMinimumReclaim", "containerLogMaxSize", "containerLogMaxFiles", "containerLogMaxWorkers",
		"containerLogMonitorInterval", "makeIPTablesUtilChains", "podCIDR",
		"enableServer", "address", "port", "readOnlyPort", "tlsCertFile", "tlsPrivateKeyFile", "tlsCipherSuites",
		"tlsCurvePreferences", "tlsMinVersion", "serverTLSBootstrap", "authentication", "authorization",
		"enableDebuggingHandlers", "enableContentionProfiling", "healthzPort", "healthzBindAddress",
		"streamingConnectionIdleTimeout", "enableSystemLogHandler", "enableSystemLogQuery", "enableProfilingHandler",
		"enableDebugFlagsHandler", "imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist",
		"shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority",
		"systemCgroups", "kubeletCgroups",
		"cpuManagerPolicy", "cpuManagerPolicyOptions", "memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerScope",
		"topologyManagerPolicyOptions", "reservedMemory", "tracing", "qosReserved", "memoryThrottlingFactor",
		"memoryReservationPolicy"),
	level(Partly, "attaching volumes from the node (the Node's annotation is set, for the controller to know)",
		"enableControllerAttachDetach"),
	level(Partly, "other gates than PodsAPI, MemoryQoS, QOSReserved, DisableCPUQuotaWithExclusiveCPUs, "+
		"KubeletPodResourcesListUseActivePods, SELinuxMount and those of the CPU manager's options (what another gate "+
		"does is on, or listed as unsupported)", "featureGates"),
	level(Moot, "systemd sets it for each daemon (OOMScoreAdjust= in the unit), and kubelot up sets -999", "oomScoreAdj"),
	level(Moot, "systemd sets it for each daemon (LimitNOFILE= in the unit)", "maxOpenFiles"),
	level(Moot, "it belonged to the kubenet network plugin, which is gone", "hairpinMode"),
	level(Moot, "the kubelet has no rules with these marks any more either", "iptablesMasqueradeBit", "iptablesDropBit"),
	level(Moot, "FlexVolume drivers aren't run", "volumePluginDir"),
	level(Moot, "run-once mode was removed from Kubernetes (KEP-4580)", "runOnce"),
	level(Moot, "it has no effect on cgroup v2 and was never more than a hint", "kernelMemcgNotification"),
	level(Moot, "pods are synced by events, and retried with a back-off of their own", "syncFrequency"),
	level(Moot, "containers get other CPUs as soon as these change", "cpuManagerReconcilePeriod"),
	level(Moot, "kubelot hides no metrics", "showHiddenMetricsForVersion"),
)

func level(l Level, note string, paths ...string) []Field {
	fields := make([]Field, 0, len(paths))
	for _, path := range paths {
		fields = append(fields, Field{Path: path, Level: l, Note: note})
	}
	return fields
}

// fieldWarnings names every field that was set to something other than its default and has no effect.
func fieldWarnings(m merged, effective *kubeletv1beta1.KubeletConfiguration) []string {
	var defaults kubeletv1beta1.KubeletConfiguration
	setDefaults(&defaults)
	var warnings []string
	for _, field := range Fields {
		if field.Level == Supported || m.fields[field.Path] == nil ||
			field.Path == "featureGates" && onlySwitches(effective.FeatureGates) ||
			equality.Semantic.DeepEqual(valueOf(&defaults, field.Path), valueOf(effective, field.Path)) {
			continue
		}
		effect, note := "no effect", field.Note
		if field.Level != Moot {
			note = "kubelot doesn't support " + note + " yet"
		}
		if field.Level == Partly {
			effect = "part of its effect only"
		}
		warnings = append(warnings, fmt.Sprintf("configuration field %s%s has %s: %s", field.Path,
			m.where(field.Path), effect, note))
	}
	return warnings
}

// valueOf is the value of a field by its JSON name. Encoding the whole configuration to find it would leave behind
// tables of all its types, in each daemon.
func valueOf(k *kubeletv1beta1.KubeletConfiguration, name string) any {
	v := reflect.ValueOf(k).Elem()
	if i := indexOf(v.Type(), name); i >= 0 {
		return v.Field(i).Interface()
	}
	return nil
}
