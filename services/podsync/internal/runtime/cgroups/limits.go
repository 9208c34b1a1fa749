package cgroups

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/node/qos"
)

// The kernel's bounds (kernel/sched) and the scheduler's unit.
const (
	minShares   = 2
	maxShares   = 262144
	sharesOfCPU = 1024
	// minQuota is the least CPU time in a period, in microseconds.
	minQuota = 1000
)

// PIDs is the resource under which node limits give the number of processes.
const PIDs corev1.ResourceName = "pid"

const (
	// unlimited stands for no limit in the kernel's files.
	unlimited = -1
	// unlimitedPages is more than any machine has in huge pages, in bytes, as the kubelet sets it.
	unlimitedPages = 1 << 62
	// otherPages is the key of Limits.HugePages for all sizes that aren't there.
	otherPages = 0
)

// Limits are what a cgroup is held to.
type Limits struct {
	// CPUShares is the weight against sibling cgroups, 1024 for one CPU; 0 leaves it alone.
	CPUShares uint64
	// CPUQuota is the CPU time in microseconds in each CPUPeriod (also microseconds); -1 is unlimited, 0 leaves it
	// alone.
	CPUQuota  int64
	CPUPeriod uint64
	// Memory is in bytes; -1 is unlimited, 0 leaves it alone.
	Memory int64
	// Pids is the number of processes; -1 is unlimited, 0 leaves it alone.
	Pids int64
	// HugePages are bytes by page size in bytes; a page size that is missing has those of otherPages, or none. Nil leaves
	// them alone.
	HugePages map[int64]int64
	// Unified are values by the file of cgroup v2. There is nothing like it with version 1.
	Unified map[string]string
}

// LimitsOf computes a pod's limits from its containers and pod-level resources: CPU shares from the requests,
// CPU quota and memory from the limits where every container has one (KEP-2837 for pod-level ones).
func LimitsOf(pod *corev1.Pod, cfg Config) Limits {
	cpuLimited, memoryLimited := true, true
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{
		ContainerFn: func(list corev1.ResourceList, _ resourcehelper.ContainerType) {
			cpuLimited = cpuLimited && !list.Cpu().IsZero()
			memoryLimited = memoryLimited && !list.Memory().IsZero()
		},
	})
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		cpuLimited = cpuLimited || !pod.Spec.Resources.Limits.Cpu().IsZero()
		memoryLimited = memoryLimited || !pod.Spec.Resources.Limits.Memory().IsZero()
	}
	out := Limits{
		CPUShares: CPUShares(requests.Cpu().MilliValue()), CPUQuota: unlimited, Memory: unlimited,
		HugePages: HugePages(requests), Unified: cfg.Memory.ofPod(podspec.QOSClass(pod), requests.Memory().Value()),
	}
	if cfg.PodPidsLimit > 0 {
		out.Pids = cfg.PodPidsLimit
	}
	switch podspec.QOSClass(pod) {
	case corev1.PodQOSBestEffort:
		out.CPUShares = minShares
		return out
	case corev1.PodQOSGuaranteed:
		cpuLimited, memoryLimited = true, true
	}
	if cpuLimited && cfg.CPUCFSQuota && (!cfg.StaticCPUs || !exclusiveCPUs(pod)) {
		out.CPUPeriod = uint64(cfg.CPUCFSQuotaPeriod.Microseconds())
		out.CPUQuota = cmp.Or(CPUQuota(limits.Cpu().MilliValue(), int64(out.CPUPeriod)), unlimited)
	}
	if memoryLimited && !limits.Memory().IsZero() {
		out.Memory = limits.Memory().Value()
	}
	return out
}

// exclusiveCPUs reports whether a container of the pod has CPUs of its own under the static policy, so that nothing of
// the pod may be throttled.
func exclusiveCPUs(pod *corev1.Pod) (some bool) {
	for c := range podspec.Containers(&pod.Spec) {
		some = some || qos.WholeCPUs(pod, c)
	}
	return some
}

// CPUShares is the weight of an amount of CPU.
func CPUShares(milliCPU int64) uint64 {
	return uint64(min(max(milliCPU*sharesOfCPU/1000, minShares), maxShares))
}

// CPUQuota is the CPU time in a period that an amount of CPU is, 0 for none. Times are in microseconds.
func CPUQuota(milliCPU, period int64) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*period/1000, minQuota)
}

// HugePages are the bytes in huge pages by page size.
func HugePages(list corev1.ResourceList) map[int64]int64 {
	pages := map[int64]int64{}
	for name, q := range list {
		size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		if page, err := resource.ParseQuantity(size); err == nil && page.Sign() > 0 {
			pages[page.Value()] += q.Value()
		}
	}
	return pages
}

// unenforced are kubepods' limits where pods may use all of the machine. What an earlier agent has enforced is lifted.
func unenforced(capacity corev1.ResourceList) Limits {
	return Limits{
		// The kernel's default of one CPU would starve the pods of a larger machine.
		CPUShares: CPUShares(capacity.Cpu().MilliValue()),
		Memory:    unlimited, Pids: unlimited, HugePages: map[int64]int64{otherPages: unlimitedPages},
	}
}

// enforced are kubepods' limits where pods are held to what they may use.
func enforced(allocatable corev1.ResourceList) Limits {
	return Limits{
		CPUShares: CPUShares(allocatable.Cpu().MilliValue()), Memory: allocatable.Memory().Value(),
		Pids: allocatable.Name(PIDs, resource.DecimalSI).Value(), HugePages: HugePages(allocatable),
	}
}

// NodeLimits is what pods may use of a machine in all: its capacity less what is reserved. Eviction thresholds are
// not taken off: they are kept free by eviction, long before the kernel kills.
func NodeLimits(capacity, reserved corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range capacity {
		left := q.DeepCopy()
		left.Sub(reserved[name])
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, left.Format)
		}
		out[name] = left
	}
	return out
}

// library is l in the form of the cgroup library. Page sizes are those that the kernel accounts for.
func (l Limits) library(v2 bool, pageSizes []string) *cgroups.Resources {
	r := &cgroups.Resources{
		SkipDevices: true, SkipFreezeOnSet: true,
		CpuQuota: l.CPUQuota, CpuPeriod: l.CPUPeriod, Memory: l.Memory,
	}
	if v2 {
		r.CpuWeight, r.Unified = weight(l.CPUShares), l.Unified
	} else {
		r.CpuShares = l.CPUShares
	}
	if l.Pids != 0 {
		r.PidsLimit = &l.Pids
	}
	if l.HugePages == nil {
		return r
	}
	sizes := map[string]int64{}
	for size, bytes := range l.HugePages {
		sizes[PageSize(size)] = bytes
	}
	for _, size := range slices.Sorted(slices.Values(pageSizes)) {
		bytes, known := sizes[size]
		if !known {
			bytes = l.HugePages[otherPages]
		}
		r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: size, Limit: uint64(bytes)})
	}
	return r
}

// weight is cpu.weight for CPU shares by the kubelet's linear rule. The library's newer rule gives other
// weights, and siblings that a kubelet made must be weighed alike.
func weight(shares uint64) uint64 {
	if shares == 0 {
		return 0
	}
	return 1 + (min(max(shares, minShares), maxShares)-minShares)*9999/(maxShares-minShares)
}

// PageSize is the kernel's spelling of a huge page's size, such as 2MB.
func PageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for bytes >= 1024 && bytes%1024 == 0 && i < len(units)-1 {
		bytes /= 1024
		i++
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}
