// Package qos has what follows from a pod's quality-of-service class for its CPUs and memory.
package qos

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"kubelot.dev/daemon/podspec"
)

// WholeCPUs reports whether the container has CPUs of its own under the static policy. Pods with resources as a whole
// (KEP-2837) get none.
func WholeCPUs(pod *corev1.Pod, c *corev1.Container) bool {
	cpu := c.Resources.Requests.Cpu().MilliValue()
	return cpu > 0 && cpu%1000 == 0 && podspec.QOSClass(pod) == corev1.PodQOSGuaranteed &&
		!resourcehelper.IsPodLevelResourcesSet(pod)
}

// The files of cgroup v2 with the memory that the kernel doesn't take from a cgroup, and that it takes last.
const (
	MemoryMin = "memory.min"
	MemoryLow = "memory.low"
)

// Protection is the value by the file of cgroup v2 with which the kernel takes no memory that a guaranteed pod or a
// container of one requests, and what others request last; nil where nothing is requested.
//
// Source: KEP-2570 as in Kubernetes 1.36, memoryReservationPolicy TieredReservation.
func Protection(class corev1.PodQOSClass, request int64) map[string]string {
	file := MemoryLow
	switch {
	case request <= 0:
		return nil
	case class == corev1.PodQOSGuaranteed:
		file = MemoryMin
	}
	return map[string]string{file: strconv.FormatInt(request, 10)}
}
