package cpus

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"
)

// containers are a pod's containers in the order in which they get CPUs: that of their start.
func containers(pod *corev1.Pod) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// passing are the names of the init containers that end before the next one starts, and pass their CPUs on.
func passing(pod *corev1.Pod) map[string]bool {
	names := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; !sidecar(c) {
			names[c.Name] = true
		}
	}
	return names
}

func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// wanted is how many CPUs the container is to have for itself: 0 unless its pod is Guaranteed and it asks for a whole
// number. Pods with resources of their own have none (that is for PodLevelResourceManagers, an alpha feature).
func wanted(pod *corev1.Pod, container *corev1.Container) int {
	if !guaranteed(pod) || resourcehelper.IsPodLevelResourcesSet(pod) {
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
		if sidecar(c) {
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

// guaranteed is the pod's QoS class as the API server computed it, or by its rule: every container has limits of CPU
// and memory, and its requests are the same.
func guaranteed(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSGuaranteed
	}
	for c := range containers(pod) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			if limit.IsZero() || request.Cmp(limit) != 0 {
				return false
			}
		}
	}
	return len(pod.Spec.Containers) > 0
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
