package memory

import (
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"kubelot.dev/daemon/podspec"
)

// requests are bytes by the type of memory.
type requests map[corev1.ResourceName]uint64

// types are in a fixed order, so that the same pods always get the same.
func (r requests) types() []corev1.ResourceName { return slices.Sorted(maps.Keys(r)) }

// containerRequests are the memory and huge pages that a container asks for.
func containerRequests(c *corev1.Container) (requests, error) {
	r := requests{}
	for name, q := range c.Resources.Requests {
		if !isMemory(name) {
			continue
		}
		size, ok := sizeOf(q)
		if !ok {
			return nil, errors.New("[memorymanager] failed to represent quantity as int64")
		}
		r[name] = size
	}
	return r, nil
}

// sizeOf is a number of bytes. A quantity that was read from 1.5Gi is an integer, too, but knows it only when it is
// read from its canonical form. The kubelet refuses it.
func sizeOf(q resource.Quantity) (uint64, bool) {
	size, ok := q.AsInt64()
	if !ok {
		canonical, err := resource.ParseQuantity(q.String())
		if err != nil {
			return 0, false
		}
		size, ok = canonical.AsInt64()
	}
	return uint64(size), ok && size >= 0
}

// podRequests are the most that a pod's containers have at a time (KEP-753), of the types that main containers ask
// for.
func podRequests(pod *corev1.Pod) (requests, error) {
	peak, sidecars, total := requests{}, requests{}, requests{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		asked, err := containerRequests(c)
		if err != nil {
			return nil, err
		}
		for name, size := range asked {
			if podspec.IsSidecar(c) {
				sidecars[name] += size
			} else {
				peak[name] = max(peak[name], sidecars[name]+size)
			}
		}
	}
	for i := range pod.Spec.Containers {
		asked, err := containerRequests(&pod.Spec.Containers[i])
		if err != nil {
			return nil, err
		}
		for name, size := range asked {
			total[name] += size
		}
	}
	for name := range total {
		total[name] = max(total[name]+sidecars[name], peak[name])
	}
	return total, nil
}

// eligible reports whether the pod's containers get memory of their own. Those of a pod with resources for the whole
// pod don't, since they may share them (KEP-2837).
func eligible(pod *corev1.Pod) bool {
	return podspec.QOSClass(pod) == corev1.PodQOSGuaranteed && !resourcehelper.IsPodLevelResourcesSet(pod)
}

// isPlainInit reports whether the container ends before the pod's main containers start.
func isPlainInit(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return !podspec.IsSidecar(c)
		}
	}
	return false
}

// endedBefore are the plain init containers that have ended when the container starts, in their order.
func endedBefore(pod *corev1.Pod, name string) []string {
	var names []string
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.Name == name {
			break
		}
		if !podspec.IsSidecar(c) {
			names = append(names, c.Name)
		}
	}
	return names
}
