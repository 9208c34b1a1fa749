package config

import (
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// defaultParallelPulls is how many images are pulled at a time where the configuration names no number and doesn't ask
// for serial pulls. The kubelet pulls one at a time by default; kubelot doesn't, since one slow registry would hold up
// every pod.
const defaultParallelPulls = 4

// defaultEvictionHard are the kubelet's thresholds for Linux.
var defaultEvictionHard = map[string]string{
	"memory.available":   "100Mi",
	"nodefs.available":   "10%",
	"nodefs.inodesFree":  "5%",
	"imagefs.available":  "15%",
	"imagefs.inodesFree": "5%",
}

// setDefaults fills in what the configuration leaves open, with the values that the field comments of
// k8s.io/kubelet/config/v1beta1 state.
func setDefaults(k *kubeletv1beta1.KubeletConfiguration) {
	defaultServer(k)
	defaultNodeStatus(k)
	defaultImagesAndLogs(k)
	defaultResources(k)
	defaultManagers(k)
	logsapi.SetRecommendedLoggingConfiguration(&k.Logging)
}

// preset fills in, in the fields of --config or in none, those defaults that the kubelet has in force when it reads
// drop-ins and flags. These change single thresholds, or one of two periods.
func preset(file map[string]any) {
	if file["evictionHard"] == nil {
		hard := map[string]any{}
		for signal, threshold := range defaultEvictionHard {
			hard[signal] = threshold
		}
		file["evictionHard"] = hard
	}
	update, report := file["nodeStatusUpdateFrequency"], file["nodeStatusReportFrequency"]
	if !isPeriod(report) && isPeriod(update) {
		file["nodeStatusReportFrequency"] = update // the older field alone sets both
	}
}

// isPeriod reports whether a field of a file is a duration other than zero.
func isPeriod(field any) bool {
	text, _ := field.(string)
	period, err := time.ParseDuration(text)
	return err == nil && period != 0
}

func defaultServer(k *kubeletv1beta1.KubeletConfiguration) {
	orPointer(&k.EnableServer, true)
	or(&k.Address, "0.0.0.0")
	or(&k.Port, 10250)
	orPointer(&k.Authentication.Anonymous.Enabled, false)
	orPointer(&k.Authentication.Webhook.Enabled, true)
	orDuration(&k.Authentication.Webhook.CacheTTL, 2*time.Minute)
	or(&k.Authorization.Mode, kubeletv1beta1.KubeletAuthorizationModeWebhook)
	orDuration(&k.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	orDuration(&k.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	orPointer(&k.EnableDebuggingHandlers, true)
	orPointer(&k.HealthzPort, 10248)
	or(&k.HealthzBindAddress, "127.0.0.1")
	orDuration(&k.StreamingConnectionIdleTimeout, 4*time.Hour)
	orPointer(&k.EnableSystemLogHandler, true)
	orPointer(&k.EnableProfilingHandler, true)
	orPointer(&k.EnableDebugFlagsHandler, true)
}

func defaultNodeStatus(k *kubeletv1beta1.KubeletConfiguration) {
	orDuration(&k.NodeStatusReportFrequency, 5*time.Minute)
	orDuration(&k.NodeStatusUpdateFrequency, 10*time.Second)
	or(&k.NodeLeaseDurationSeconds, 40)
	orPointer(&k.NodeStatusMaxImages, 50)
	orPointer(&k.RegisterNode, true)
	orPointer(&k.EventRecordQPS, 50)
	or(&k.EventBurst, 100)
	or(&k.ContentType, "application/vnd.kubernetes.protobuf")
	if k.KubeAPIQPS != nil && *k.KubeAPIQPS == 0 {
		k.KubeAPIQPS = nil // for the kubelet 0 is a default too: client-go's
	}
	orPointer(&k.KubeAPIQPS, 50)
	or(&k.KubeAPIBurst, 100)
}

func defaultImagesAndLogs(k *kubeletv1beta1.KubeletConfiguration) {
	or(&k.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	orDuration(&k.RuntimeRequestTimeout, 2*time.Minute)
	orPointer(&k.RegistryPullQPS, 5)
	or(&k.RegistryBurst, 10)
	if k.SerializeImagePulls == nil || !*k.SerializeImagePulls {
		orPointer(&k.MaxParallelImagePulls, defaultParallelPulls)
	}
	orPointer(&k.SerializeImagePulls, k.MaxParallelImagePulls != nil && *k.MaxParallelImagePulls < 2)
	or(&k.ImagePullCredentialsVerificationPolicy, kubeletv1beta1.NeverVerifyPreloadedImages)
	orDuration(&k.ImageMinimumGCAge, 2*time.Minute)
	orPointer(&k.ImageGCHighThresholdPercent, 85)
	orPointer(&k.ImageGCLowThresholdPercent, 80)
	or(&k.ContainerLogMaxSize, "10Mi")
	orPointer(&k.ContainerLogMaxFiles, 5)
	orPointer(&k.ContainerLogMaxWorkers, 1)
	orPointer(&k.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	or(&k.PodLogsDir, "/var/log/pods")
}

func defaultResources(k *kubeletv1beta1.KubeletConfiguration) {
	or(&k.MaxPods, 110)
	if k.PodPidsLimit == nil || *k.PodPidsLimit < 0 {
		k.PodPidsLimit = nil
		orPointer(&k.PodPidsLimit, -1)
	}
	orPointer(&k.CgroupsPerQOS, true)
	if k.CgroupRoot != "" && !strings.HasPrefix(k.CgroupRoot, "/") {
		k.CgroupRoot = "/" + k.CgroupRoot // the kubelet's reading of it
	}
	or(&k.CgroupDriver, "cgroupfs")
	orPointer(&k.CPUCFSQuota, true)
	orPointer(&k.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	orPointer(&k.OOMScoreAdj, -999)
	or(&k.MaxOpenFiles, 1000000)
	orPointer(&k.FailSwapOn, true)
	orPointer(&k.FailCgroupV1, true)
	orPointer(&k.SeccompDefault, false)
	orPointer(&k.LocalStorageCapacityIsolation, true)
	if k.EnforceNodeAllocatable == nil {
		k.EnforceNodeAllocatable = []string{"pods"}
	}
	orPointer(&k.MemoryThrottlingFactor, 0.9)
	or(&k.MemoryReservationPolicy, kubeletv1beta1.NoneMemoryReservationPolicy)
	orDuration(&k.EvictionPressureTransitionPeriod, 5*time.Minute)
	orPointer(&k.MergeDefaultEvictionSettings, false)
	switch {
	case k.EvictionHard == nil:
		k.EvictionHard = maps.Clone(defaultEvictionHard)
	case *k.MergeDefaultEvictionSettings:
		all := maps.Clone(defaultEvictionHard)
		maps.Copy(all, k.EvictionHard)
		k.EvictionHard = all
	}
}

func defaultManagers(k *kubeletv1beta1.KubeletConfiguration) {
	orDuration(&k.SyncFrequency, time.Minute)
	orDuration(&k.FileCheckFrequency, 20*time.Second)
	orDuration(&k.HTTPCheckFrequency, 20*time.Second)
	orDuration(&k.VolumeStatsAggPeriod, time.Minute)
	or(&k.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	orPointer(&k.EnableControllerAttachDetach, true)
	or(&k.ConfigMapAndSecretChangeDetectionStrategy, kubeletv1beta1.WatchChangeDetectionStrategy)
	orPointer(&k.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 5 * time.Minute})
	orPointer(&k.ResolverConfig, "/etc/resolv.conf")
	or(&k.HairpinMode, kubeletv1beta1.PromiscuousBridge)
	or(&k.ImagePullCredentialsVerificationPolicy, kubeletv1beta1.NeverVerifyPreloadedImages)
	or(&k.CPUManagerPolicy, "none")
	orDuration(&k.CPUManagerReconcilePeriod, 10*time.Second)
	or(&k.MemoryManagerPolicy, kubeletv1beta1.NoneMemoryManagerPolicy)
	or(&k.TopologyManagerPolicy, kubeletv1beta1.NoneTopologyManagerPolicy)
	or(&k.TopologyManagerScope, kubeletv1beta1.ContainerTopologyManagerScope)
	orPointer(&k.MakeIPTablesUtilChains, true)
	orPointer(&k.IPTablesMasqueradeBit, 14)
	orPointer(&k.IPTablesDropBit, 15)
	if k.UserNamespaces == nil {
		k.UserNamespaces = &kubeletv1beta1.UserNamespaces{}
	}
	orPointer(&k.UserNamespaces.IDsPerPod, 65536)
}

// or sets a field that has its zero value.
func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// orPointer sets a field that is nil.
func orPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func orDuration(field *metav1.Duration, value time.Duration) { or(&field.Duration, value) }
