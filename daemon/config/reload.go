package config

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Verbosity is the part of the field logging that can change while a daemon runs. The rest of it is fixed at start.
const Verbosity = "logging.verbosity"

// loggingField is the field of which Verbosity is a part, and loggingFormat another part.
const (
	loggingField  = "logging"
	loggingFormat = "logging.format"
)

// everyone stands for all daemons.
const everyone = "*"

// concerned are the daemons that each field of KubeletConfiguration concerns. What is missing concerns none. It is made
// when it is first needed, because most daemons never need it.
var concerned = sync.OnceValue(func() map[string][]string { return concerns(readers()) })

// readers are the same as lists of fields, by their daemons.
func readers() map[string]string {
	return map[string]string{
		everyone: "logging.verbosity logging.format kubeletCgroups",
		"api": "address port readOnlyPort enableServer tlsCertFile tlsPrivateKeyFile tlsCipherSuites tlsCurvePreferences " +
			"tlsMinVersion serverTLSBootstrap authentication authorization enableDebuggingHandlers " +
			"enableContentionProfiling healthzPort healthzBindAddress streamingConnectionIdleTimeout " +
			"enableSystemLogHandler enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler",
		"gc": "evictionHard evictionSoft evictionSoftGracePeriod evictionMinimumReclaim evictionPressureTransitionPeriod " +
			"evictionMaxPodGracePeriod mergeDefaultEvictionSettings imageMinimumGCAge imageMaximumGCAge " +
			"imageGCHighThresholdPercent imageGCLowThresholdPercent containerLogMaxSize containerLogMaxFiles " +
			"containerLogMaxWorkers containerLogMonitorInterval shutdownGracePeriod shutdownGracePeriodCriticalPods " +
			"shutdownGracePeriodByPodPriority",
		"lease": "nodeStatusUpdateFrequency nodeStatusReportFrequency nodeLeaseDurationSeconds podsPerCore providerID " +
			"registerNode registerWithTaints port podCIDR",
		"pleg": "nodeStatusMaxImages",
		"podsync": "staticPodPath staticPodURL staticPodURLHeader fileCheckFrequency httpCheckFrequency clusterDNS " +
			"clusterDomain resolvConf cgroupsPerQOS cpuCFSQuota cpuCFSQuotaPeriod podPidsLimit allowedUnsafeSysctls " +
			"seccompDefault crashLoopBackOff serializeImagePulls maxParallelImagePulls registryPullQPS registryBurst " +
			"imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist failCgroupV1 " +
			"protectKernelDefaults makeIPTablesUtilChains memorySwap singleProcessOOMKill userNamespaces " +
			"systemReservedCgroup kubeReservedCgroup memoryThrottlingFactor memoryReservationPolicy qosReserved",
		"resource": "cpuManagerPolicyOptions topologyManagerScope topologyManagerPolicyOptions reservedMemory",
		"stats":    "volumeStatsAggPeriod",
		"status":   "eventRecordQPS eventBurst",

		"gc lease":                "localStorageCapacityIsolation",
		"gc podsync":              "enforceNodeAllocatable",
		"gc podsync stats":        "podLogsDir cgroupRoot cgroupDriver",
		"gc pleg podsync stats":   "imageServiceEndpoint",
		"lease resource":          "evictionHard",
		"lease podsync resource":  "kubeReserved systemReserved reservedSystemCPUs",
		"lease podsync status":    "maxPods",
		"lease volume":            "enableControllerAttachDetach",
		"podsync resource":        "cpuManagerPolicy memoryManagerPolicy topologyManagerPolicy",
		"api podsync":             "tracing",
		"podsync stats":           "systemCgroups",
		"podsync resource volume": "featureGates",
		"podsync volume":          "configMapAndSecretChangeDetectionStrategy failSwapOn",

		"api gc pleg podsync probe stats":          "containerRuntimeEndpoint runtimeRequestTimeout",
		"api lease podsync resource status volume": "contentType kubeAPIQPS kubeAPIBurst rotateCertificates",
	}
}

// concerns turns lists of fields by daemons into lists of daemons by field.
func concerns(lists map[string]string) map[string][]string {
	table := map[string][]string{}
	for daemons, fields := range lists {
		for field := range strings.FieldsSeq(fields) {
			table[field] = append(table[field], strings.Fields(daemons)...)
		}
	}
	return table
}

// Concerns reports whether a daemon's work depends on a field, as Changed names it.
func Concerns(field, daemon string) bool {
	return slices.Contains(concerned()[field], daemon) || slices.Contains(concerned()[field], everyone)
}

// Changed names the fields of KubeletConfiguration that differ, in the order of their names. Parts of the field logging
// are named one by one, because not all of them are fixed at start.
func Changed(old, next *Config) []string {
	var names []string
	for _, field := range Fields {
		before, after := valueOf(&old.Kubelet, field.Path), valueOf(&next.Kubelet, field.Path)
		switch {
		case equality.Semantic.DeepEqual(before, after):
		case field.Path == loggingField:
			names = append(names, changedLogging(old, next)...)
		default:
			names = append(names, field.Path)
		}
	}
	slices.Sort(names)
	return names
}

func changedLogging(old, next *Config) []string {
	a, b := old.Kubelet.Logging, next.Kubelet.Logging
	var names []string
	if a.Verbosity != b.Verbosity {
		names = append(names, Verbosity)
	}
	if a.Format != b.Format {
		names = append(names, loggingFormat)
	}
	if len(names) == 0 {
		names = append(names, loggingField)
	}
	return names
}

// With is a copy of the configuration that has the values of next in the fields, which are named as by Changed.
func (c *Config) With(next *Config, fields []string) *Config {
	merged := *c
	for _, name := range fields {
		switch name {
		case Verbosity:
			merged.Kubelet.Logging.Verbosity = next.Kubelet.Logging.Verbosity
		case loggingFormat:
			merged.Kubelet.Logging.Format = next.Kubelet.Logging.Format
		default:
			copyField(&merged, next, name)
		}
	}
	return &merged
}

// copyField copies the value of a field. Both configurations share what it points to, which nobody changes.
func copyField(into, from *Config, name string) {
	target, source := reflect.ValueOf(&into.Kubelet).Elem(), reflect.ValueOf(&from.Kubelet).Elem()
	if i := indexOf(target.Type(), name); i >= 0 {
		target.Field(i).Set(source.Field(i))
	}
}

// indexOf is the index of the struct's field with the JSON name; negative if there is none.
func indexOf(t reflect.Type, name string) int {
	for i := range t.NumField() {
		if tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); tag == name {
			return i
		}
	}
	return -1
}
