package criconfig

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/runtime/cgroups"
)

// LimitedSwap is the behavior that lets Burstable pods use swap.
const LimitedSwap = "LimitedSwap"

// resourcesOf gives a container's limits for its creation.
func resourcesOf(node *Node, pod *corev1.Pod, container *corev1.Container,
	exclusiveCPUs bool,
) *runtimeapi.LinuxContainerResources {
	limits := effectiveLimits(pod, container)
	r := linuxResources(node, container.Resources.Requests, limits)
	if exclusiveCPUs {
		unlimitCPU(node, r)
	}
	r.OomScoreAdj = oomScoreAdj(node, pod, container)
	r.HugepageLimits = hugePages(node, pod, container)
	setSwap(node, r, pod, container)
	setMemoryQoS(node, r, pod, container)
	return r
}

// Resized gives the limits of a container that runs: those that it may have had and hasn't any more are lifted too.
func Resized(node *Node, pod *corev1.Pod, container *corev1.Container,
	exclusiveCPUs bool,
) *runtimeapi.LinuxContainerResources {
	r := resourcesOf(node, pod, container, exclusiveCPUs)
	if node.MemoryQoS.On && r.Unified[fileHigh] == "" {
		r.Unified[fileHigh] = "max"
	}
	return r
}

// effectiveLimits are the container's, and where it has none those of the pod as a whole (KEP-2837).
func effectiveLimits(pod *corev1.Pod, container *corev1.Container) corev1.ResourceList {
	limits := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		q := container.Resources.Limits[name]
		if q.IsZero() && resourcehelper.IsPodLevelResourcesSet(pod) {
			q = pod.Spec.Resources.Limits[name]
		}
		limits[name] = q
	}
	return limits
}

// linuxResources turns CPU and memory into what cgroups know.
func linuxResources(node *Node, requests, limits corev1.ResourceList) *runtimeapi.LinuxContainerResources {
	cpuLimit := limits[corev1.ResourceCPU]
	cpuRequest, requested := requests[corev1.ResourceCPU]
	if !requested {
		// The API server fills this in too, but not for pods from manifests.
		cpuRequest = cpuLimit
	}
	memory := limits[corev1.ResourceMemory]
	r := &runtimeapi.LinuxContainerResources{
		CpuShares: int64(cgroups.CPUShares(cpuRequest.MilliValue())), MemoryLimitInBytes: memory.Value(),
	}
	if node.CPUCFSQuota {
		r.CpuPeriod = node.CPUCFSQuotaPeriod.Microseconds()
		r.CpuQuota = cgroups.CPUQuota(cpuLimit.MilliValue(), r.CpuPeriod)
	}
	if node.CgroupV2 && !node.SingleProcessOOMKill {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// unlimitCPU frees what has CPUs of its own from the quota.
func unlimitCPU(node *Node, r *runtimeapi.LinuxContainerResources) {
	if r.CpuPeriod != 0 && !node.QuotaWithExclusiveCPUs {
		r.CpuQuota = -1
	}
}

// hugePages limits every page size of the machine; those that aren't asked for to nothing. A container's
// own limit goes before the pod's.
func hugePages(node *Node, pod *corev1.Pod, container *corev1.Container) []*runtimeapi.HugepageLimit {
	wanted := map[string]uint64{}
	add := func(limits corev1.ResourceList) {
		for size, bytes := range cgroups.HugePages(limits) {
			wanted[cgroups.PageSize(size)] = uint64(max(bytes, 0))
		}
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		add(pod.Spec.Resources.Limits)
	}
	add(container.Resources.Limits)
	var limits []*runtimeapi.HugepageLimit
	for _, size := range node.HugePageSizes {
		limits = append(limits, &runtimeapi.HugepageLimit{PageSize: size, Limit: wanted[size]})
	}
	return limits
}

// setSwap lets burstable containers use the node's swap in proportion to their memory request where the node
// is configured so; all others get none.
//
// Source: KEP-2400.
func setSwap(node *Node, r *runtimeapi.LinuxContainerResources, pod *corev1.Pod, container *corev1.Container) {
	switch {
	case !node.SwapController:
		return
	case !node.CgroupV2:
		// Memory and swap together: equal to the memory limit is no swap.
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
		return
	}
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	r.Unified["memory.swap.max"] = strconv.FormatInt(swapShare(node, pod, container), 10)
}

// Swaps reports whether the container has a share of the node's swap.
func Swaps(node *Node, pod *corev1.Pod, container *corev1.Container) bool {
	return node.SwapController && node.CgroupV2 && swaps(node, pod, container)
}

func swaps(node *Node, pod *corev1.Pod, container *corev1.Container) bool {
	request, limit := container.Resources.Requests.Memory(), container.Resources.Limits.Memory()
	return node.SwapBehavior == LimitedSwap && !isCritical(pod) && podspec.QOSClass(pod) == corev1.PodQOSBurstable &&
		(!request.IsZero() || !limit.IsZero()) && request.Cmp(*limit) != 0
}

func swapShare(node *Node, pod *corev1.Pod, container *corev1.Container) int64 {
	request := container.Resources.Requests.Memory()
	switch {
	case !swaps(node, pod, container):
		return 0
	case node.MemoryCapacity == 0, request.Value() > int64(node.MemoryCapacity):
		return 0
	}
	return int64(float64(request.Value()) / float64(node.MemoryCapacity) * float64(node.SwapCapacity))
}

// isCritical reports whether the node depends on the pod: static and mirror pods, and those of the system's priority.
func isCritical(pod *corev1.Pod) bool {
	if s, ok := pod.Annotations[topic.SourceAnnotation]; ok && topic.Source(s) != topic.SourceAPI {
		return true
	}
	if _, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		return true
	}
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= topic.SystemCritical
}
