package criconfig

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"kubelot.dev/daemon/podspec"
)

// The OOM scores of the QoS classes; burstable containers lie between them.
const (
	oomGuaranteed    = -997
	oomMinBurstable  = 1000 + oomGuaranteed
	oomBestEffort    = 1000
	nodeCriticalName = "system-node-critical"
)

// oomScoreAdj says how early the kernel kills the container when memory runs out. A burstable container that
// uses no more than it requested is killed after those that use more than theirs: its score falls with the
// part of the machine's memory that it requested.
//
// Source: Kubernetes documentation "Node out of memory behavior"; KEP-753 for sidecars, KEP-2837 for pod-level
// requests.
func oomScoreAdj(node *Node, pod *corev1.Pod, container *corev1.Container) int64 {
	if pod.Spec.PriorityClassName == nodeCriticalName {
		return oomGuaranteed
	}
	switch podspec.QOSClass(pod) {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	}
	capacity := int64(node.MemoryCapacity)
	if capacity <= 0 {
		return oomBestEffort - 1
	}
	unclaimed := unclaimedMemory(pod)
	score := func(request int64) int64 { return 1000 - 1000*(request+unclaimed)/capacity }
	adj := score(container.Resources.Requests.Memory().Value())
	if isSidecarOf(pod, container) {
		// A sidecar must not be killed before the containers that it serves.
		adj = min(adj, score(leastMemoryRequest(pod)))
	}
	return min(max(adj, oomMinBurstable), oomBestEffort-1)
}

// unclaimedMemory is the part of the pod's own request that no container has, divided among them.
func unclaimedMemory(pod *corev1.Pod) int64 {
	containers := int64(len(pod.Spec.Containers) + len(pod.Spec.InitContainers))
	if !resourcehelper.IsPodLevelRequestsSet(pod) || pod.Spec.Resources.Requests.Memory().IsZero() || containers == 0 {
		return 0
	}
	claimed := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	return (pod.Spec.Resources.Requests.Memory().Value() - claimed.Memory().Value()) / containers
}

func leastMemoryRequest(pod *corev1.Pod) int64 {
	least := int64(-1)
	for i := range pod.Spec.Containers {
		if request := pod.Spec.Containers[i].Resources.Requests.Memory().Value(); least < 0 || request < least {
			least = request
		}
	}
	return max(least, 0)
}

// isSidecarOf: a regular container may have a restart policy of its own as well.
func isSidecarOf(pod *corev1.Pod, container *corev1.Container) bool {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container.Name {
			return podspec.IsSidecar(container)
		}
	}
	return false
}
