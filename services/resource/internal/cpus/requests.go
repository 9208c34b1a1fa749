package cpus

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"kubelot.dev/daemon/podspec"
)

// passing are the names of the init containers that end before the next one starts, and pass their CPUs on.
func passing(pod *corev1.Pod) map[string]bool {
	names := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; !podspec.IsSidecar(c) {
			names[c.Name] = true
		}
	}
	return names
}

// wanted is how many CPUs the container is to have for itself: 0 unless its pod is Guaranteed and it asks for a whole
// number. Pods with resources of their own have none (that is for PodLevelResourceManagers, an alpha feature).
func wanted(pod *corev1.Pod, container *corev1.Container) int {
	if podspec.QOSClass(pod) != corev1.PodQOSGuaranteed || resourcehelper.IsPodLevelResourcesSet(pod) {
		return 0
	}
	request := container.Resources.Requests[corev1.ResourceCPU]
	if request.Value()*1000 != request.MilliValue() {
		return 0
	}
	return int(request.Value())
}

// wantedByPod is how many CPUs the pod has for itself at a time: those of the containers that run together, or, if that
// is more, those of an init container and the sidecars before it.
func wantedByPod(pod *corev1.Pod) int {
	sidecars, most := 0, 0
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		n := wanted(pod, c)
		if podspec.IsSidecar(c) {
			sidecars += n
		} else {
			most = max(most, sidecars+n)
		}
	}
	together := sidecars
	for i := range pod.Spec.Containers {
		together += wanted(pod, &pod.Spec.Containers[i])
	}
	return max(most, together)
}

// reusable are the CPUs of the pod's init containers that no container which goes on running has taken over.
func (s *State) reusable(pod *corev1.Pod) cpuset.CPUSet {
	ends, passed, kept := passing(pod), cpuset.New(), cpuset.New()
	for name, cpus := range s.entries[pod.UID] {
		if ends[name] {
			passed = passed.Union(cpus)
		} else {
			kept = kept.Union(cpus)
		}
	}
	return passed.Difference(kept)
}
