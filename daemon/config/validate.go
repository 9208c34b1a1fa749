package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
)

// checker gathers what is wrong with a configuration, each with the field's path and where it was set.
type checker struct {
	where    func(path string) string
	problems []error
}

func (c *checker) check(ok bool, path string, value any, want string) {
	if !ok {
		c.problems = append(c.problems, fmt.Errorf("%s%s is %v: %s", path, c.where(path), value, want))
	}
}

func (c *checker) within(path string, value, low, high int64) {
	c.check(value >= low && value <= high, path, value, fmt.Sprintf("want %d to %d", low, high))
}

func (c *checker) notNegative(path string, value int64) {
	c.check(value >= 0, path, value, "must not be negative")
}

func (c *checker) positive(path string, value time.Duration) {
	c.check(value > 0, path, value, "must be longer than zero")
}

func (c *checker) oneOf(path, value string, allowed ...string) {
	c.check(slices.Contains(allowed, value), path, strconv.Quote(value), fmt.Sprintf("want one of %q", allowed))
}

// validate checks the fields that kubelot acts on, with all defaults filled in; where says which layer
// set a field. All problems are reported at once.
func validate(k *kubeletv1beta1.KubeletConfiguration, where func(string) string) error {
	c := &checker{where: where}
	c.limits(k)
	c.times(k)
	c.choices(k)
	c.sources(k)
	c.network(k)
	c.reservations(k)
	c.eviction(k)
	c.taints(k)
	c.images(k)
	c.enforcement(k)
	c.passive(k)
	c.logging(k)
	c.memory(k)
	return errors.Join(c.problems...)
}

func (c *checker) limits(k *kubeletv1beta1.KubeletConfiguration) {
	c.notNegative("maxPods", int64(k.MaxPods))
	c.notNegative("podsPerCore", int64(k.PodsPerCore))
	c.notNegative("registryBurst", int64(k.RegistryBurst))
	c.notNegative("registryPullQPS", int64(*k.RegistryPullQPS))
	c.notNegative("eventBurst", int64(k.EventBurst))
	c.notNegative("eventRecordQPS", int64(*k.EventRecordQPS))
	c.notNegative("kubeAPIBurst", int64(k.KubeAPIBurst))
	c.notNegative("kubeAPIQPS", int64(*k.KubeAPIQPS))
	c.check(*k.NodeStatusMaxImages >= -1, "nodeStatusMaxImages", *k.NodeStatusMaxImages, "want -1 (no limit) or more")
	if limit := k.MaxParallelImagePulls; limit != nil {
		c.check(*limit >= 1, "maxParallelImagePulls", *limit, "want 1 or more")
		c.check(!*k.SerializeImagePulls || *limit <= 1, "maxParallelImagePulls", *limit,
			"must not be larger than 1 while serializeImagePulls is true")
	}
	c.within("port", int64(k.Port), 1, 65535)
	c.within("readOnlyPort", int64(k.ReadOnlyPort), 0, 65535)
	c.within("healthzPort", int64(*k.HealthzPort), 0, 65535)
	c.within("imageGCHighThresholdPercent", int64(*k.ImageGCHighThresholdPercent), 0, 100)
	c.within("imageGCLowThresholdPercent", int64(*k.ImageGCLowThresholdPercent), 0, 100)
	c.check(*k.ImageGCLowThresholdPercent < *k.ImageGCHighThresholdPercent, "imageGCLowThresholdPercent",
		*k.ImageGCLowThresholdPercent, "must be less than imageGCHighThresholdPercent")
	ids := *k.UserNamespaces.IDsPerPod
	c.check(ids >= 65536 && ids%65536 == 0 && ids <= 1<<32-65536, "userNamespaces.idsPerPod", ids,
		"want a multiple of 65536 that fits into 32 bits")
	c.check(*k.ContainerLogMaxFiles > 1, "containerLogMaxFiles", *k.ContainerLogMaxFiles, "must be greater than 1")
	c.check(*k.ContainerLogMaxWorkers >= 1, "containerLogMaxWorkers", *k.ContainerLogMaxWorkers, "want 1 or more")
	c.check(k.ContainerLogMonitorInterval.Duration >= 3*time.Second, "containerLogMonitorInterval",
		k.ContainerLogMonitorInterval.Duration, "want 3s or more")
	_, err := resource.ParseQuantity(k.ContainerLogMaxSize)
	c.check(err == nil, "containerLogMaxSize", strconv.Quote(k.ContainerLogMaxSize),
		"want a quantity such as 10Mi; a negative one switches rotation off")
}

func (c *checker) times(k *kubeletv1beta1.KubeletConfiguration) {
	c.check(k.NodeLeaseDurationSeconds > 0, "nodeLeaseDurationSeconds", k.NodeLeaseDurationSeconds,
		"must be longer than zero")
	c.positive("nodeStatusUpdateFrequency", k.NodeStatusUpdateFrequency.Duration)
	c.positive("nodeStatusReportFrequency", k.NodeStatusReportFrequency.Duration)
	c.positive("syncFrequency", k.SyncFrequency.Duration)
	c.positive("fileCheckFrequency", k.FileCheckFrequency.Duration)
	c.positive("httpCheckFrequency", k.HTTPCheckFrequency.Duration)
	c.positive("runtimeRequestTimeout", k.RuntimeRequestTimeout.Duration)
	quota := k.CPUCFSQuotaPeriod.Duration
	c.check(quota >= time.Millisecond && quota <= time.Second, "cpuCFSQuotaPeriod", quota, "want 1ms to 1s")
	backOff := k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	c.check(backOff >= time.Second && backOff <= 5*time.Minute, "crashLoopBackOff.maxContainerRestartPeriod",
		backOff, "want 1s to 5m")
}

func (c *checker) choices(k *kubeletv1beta1.KubeletConfiguration) {
	if query := k.EnableSystemLogQuery; query != nil {
		c.check(!*query || *k.EnableSystemLogHandler, "enableSystemLogQuery", *query, "needs enableSystemLogHandler")
	}
	c.oneOf("cgroupDriver", k.CgroupDriver, "cgroupfs", "systemd")
	c.oneOf("configMapAndSecretChangeDetectionStrategy", string(k.ConfigMapAndSecretChangeDetectionStrategy),
		"Get", "Cache", "Watch")
	c.oneOf("authorization.mode", string(k.Authorization.Mode), "AlwaysAllow", "Webhook")
	c.oneOf("memorySwap.swapBehavior", k.MemorySwap.SwapBehavior, "", "NoSwap", "LimitedSwap")
	c.check(!k.RunOnce, "runOnce", k.RunOnce, "run-once mode was removed from Kubernetes")
	c.check(k.CgroupRoot == "" || filepath.IsAbs(k.CgroupRoot), "cgroupRoot", strconv.Quote(k.CgroupRoot),
		"want an absolute path below the cgroup mount, such as /")
	seen := map[string]bool{}
	for _, value := range k.EnforceNodeAllocatable {
		c.oneOf("enforceNodeAllocatable", value, "pods", "system-reserved", "system-reserved-compressible",
			"kube-reserved", "kube-reserved-compressible", "none")
		c.check(!seen[value], "enforceNodeAllocatable", strconv.Quote(value), "is listed twice")
		c.check(value != "none" || len(k.EnforceNodeAllocatable) == 1, "enforceNodeAllocatable", `"none"`,
			"must be the only entry")
		c.check(value == "none" || *k.CgroupsPerQOS, "enforceNodeAllocatable", strconv.Quote(value),
			"needs cgroupsPerQOS: set enforceNodeAllocatable to [none] without it")
		seen[value] = true
	}
}

func (c *checker) sources(k *kubeletv1beta1.KubeletConfiguration) {
	if k.StaticPodURL != "" {
		parsed, err := url.Parse(k.StaticPodURL)
		c.check(err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.Host != "",
			"staticPodURL", strconv.Quote(k.StaticPodURL), "want an http or https URL")
	}
	c.check(filepath.IsAbs(k.PodLogsDir) && filepath.Clean(k.PodLogsDir) == strings.TrimRight(k.PodLogsDir, "/"),
		"podLogsDir", strconv.Quote(k.PodLogsDir), "want a normalised absolute path")
	c.check(!strings.ContainsFunc(k.PodLogsDir, func(r rune) bool { return r > unicode.MaxASCII }), "podLogsDir",
		strconv.Quote(k.PodLogsDir), "may contain ASCII characters only")
	for _, pattern := range k.AllowedUnsafeSysctls {
		name := strings.TrimSuffix(strings.TrimSuffix(pattern, "*"), ".")
		c.check(name != "" && !strings.ContainsAny(name, "* "), "allowedUnsafeSysctls", strconv.Quote(pattern),
			"want a sysctl's name, or a prefix that ends in *")
	}
}

func (c *checker) network(k *kubeletv1beta1.KubeletConfiguration) {
	for path, value := range map[string]string{"address": k.Address, "healthzBindAddress": k.HealthzBindAddress} {
		_, err := netip.ParseAddr(value)
		c.check(err == nil, path, strconv.Quote(value), "want an IP address")
	}
}

func (c *checker) reservations(k *kubeletv1beta1.KubeletConfiguration) {
	_, err := cpuset.Parse(k.ReservedSystemCPUs)
	c.check(err == nil, "reservedSystemCPUs", strconv.Quote(k.ReservedSystemCPUs), "want a list of CPUs such as 0-3,6")
	for _, r := range []struct {
		path   string
		values map[string]string
	}{{"kubeReserved", k.KubeReserved}, {"systemReserved", k.SystemReserved}} {
		for _, name := range slices.Sorted(maps.Keys(r.values)) {
			path := r.path + "." + name
			known := slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "pid"}, name) ||
				strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
			c.check(known, path, strconv.Quote(r.values[name]), "only cpu, memory, ephemeral-storage, pid and "+
				"hugepages-<size> can be reserved")
			c.quantity(path, r.values[name])
		}
	}
}

func (c *checker) quantity(path, value string) {
	parsed, err := resource.ParseQuantity(value)
	c.check(err == nil, path, strconv.Quote(value), "want a quantity such as 500m or 256Mi")
	c.check(err != nil || parsed.Sign() >= 0, path, strconv.Quote(value), "must not be negative")
}

// evictionSignals are the signals an eviction threshold can have on Linux.
var evictionSignals = []string{
	"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
	"containerfs.available", "containerfs.inodesFree", "pid.available", "allocatableMemory.available",
}

func (c *checker) eviction(k *kubeletv1beta1.KubeletConfiguration) {
	for _, t := range []struct {
		path   string
		values map[string]string
	}{
		{"evictionHard", k.EvictionHard},
		{"evictionSoft", k.EvictionSoft},
		{"evictionMinimumReclaim", k.EvictionMinimumReclaim},
	} {
		for _, signal := range slices.Sorted(maps.Keys(t.values)) {
			path, value := t.path+"."+signal, t.values[signal]
			c.check(slices.Contains(evictionSignals, signal), path, strconv.Quote(value),
				fmt.Sprintf("no such eviction signal, want one of %q", evictionSignals))
			if _, err := ParseEvictionValue(value); err != nil {
				c.check(false, path, strconv.Quote(value), err.Error())
			}
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(k.EvictionSoft)) {
		path := "evictionSoftGracePeriod." + signal
		period, err := time.ParseDuration(k.EvictionSoftGracePeriod[signal])
		c.check(err == nil && period >= 0, path, strconv.Quote(k.EvictionSoftGracePeriod[signal]),
			"each soft threshold needs a grace period, such as 1m30s")
	}
}

func (c *checker) taints(k *kubeletv1beta1.KubeletConfiguration) {
	effects := []string{
		string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule),
		string(corev1.TaintEffectNoExecute),
	}
	for _, taint := range k.RegisterWithTaints {
		text := strconv.Quote(taint.ToString())
		problems := validation.IsQualifiedName(taint.Key)
		problems = append(problems, validation.IsValidLabelValue(taint.Value)...)
		c.check(len(problems) == 0, "registerWithTaints", text, strings.Join(problems, "; "))
		c.check(taint.Effect == "" || slices.Contains(effects, string(taint.Effect)), "registerWithTaints", text,
			fmt.Sprintf("want an effect of %q", effects))
		c.check(taint.TimeAdded == nil, "registerWithTaints", text, "timeAdded must not be set")
	}
}
