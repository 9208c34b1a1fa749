package devices

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/podspec"
)

// Need is how many devices of a resource a container wants.
type Need struct {
	Container, Resource string
	Count               int
}

// Needs are the devices of known resources that the pod's containers want, in the order in which they are to be
// assigned: init containers first. Resources that the scheduler has backed with a claim (KEP-5004) are left out.
func (b *Book) Needs(pod *corev1.Pod) (needs []Need) {
	for c := range containers(pod) {
		var own []Need
		for name, q := range c.Resources.Limits {
			if q.Sign() > 0 && b.known(string(name)) && !claimed(pod, c.Name, string(name)) {
				own = append(own, Need{c.Name, string(name), int(q.Value())})
			}
		}
		slices.SortFunc(own, func(x, y Need) int { return strings.Compare(x.Resource, y.Resource) })
		needs = append(needs, own...)
	}
	return needs
}

// containers are the pod's containers in the order of their start. The flag is true for plain init containers, which
// have ended before the later ones start.
func containers(pod *corev1.Pod) iter.Seq2[*corev1.Container, bool] {
	return func(yield func(*corev1.Container, bool) bool) {
		for i := range pod.Spec.InitContainers {
			if c := &pod.Spec.InitContainers[i]; !yield(c, !podspec.IsSidecar(c)) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i], false) {
				return
			}
		}
	}
}

// claimed reports whether the container has the resource from a driver (DRA) instead of from a device plugin.
func claimed(pod *corev1.Pod, container, resource string) bool {
	status := pod.Status.ExtendedResourceClaimStatus
	if status == nil {
		return false
	}
	return slices.ContainsFunc(status.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == resource
	})
}
