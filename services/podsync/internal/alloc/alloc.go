// Package alloc keeps a pod to the resources that it was admitted with. The API lets users change those of a running
// pod (KEP-1287), which this node doesn't do yet: until it does, what was allocated goes on to count wherever the
// node looks at the pod, and the wish is answered as infeasible.
package alloc

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// MessageInfeasible answers a resize, as the kubelet does on nodes that can't.
const MessageInfeasible = "In-place pod resize is not supported on this node"

// Keep is the pod with the resources that it was admitted with, and tells whether it asks for others. before is the pod
// as it was kept last; nil if that isn't known: then what its status says of a resize that waits counts. Neither is changed.
func Keep(pod, before *corev1.Pod) (kept *corev1.Pod, resize bool) {
	allocated := fromStatus(pod)
	if before != nil {
		allocated = fromSpec(before)
	}
	same := equality.Semantic.DeepEqual
	differs := allocated.pod != nil && !same(*allocated.pod, pod.Spec.Resources)
	each(&pod.Spec, func(c *corev1.Container) {
		r, known := allocated.containers[c.Name]
		differs = differs || known && !same(r, c.Resources)
	})
	if !differs {
		return pod, false
	}
	kept = pod.DeepCopy()
	if allocated.pod != nil {
		kept.Spec.Resources = (*allocated.pod).DeepCopy()
	}
	each(&kept.Spec, func(c *corev1.Container) {
		if r, known := allocated.containers[c.Name]; known {
			c.Resources = *r.DeepCopy()
		}
	})
	return kept, true
}

// allocation are resources by container; pod is nil where nothing is known of those of the pod as a whole.
type allocation struct {
	pod        **corev1.ResourceRequirements
	containers map[string]corev1.ResourceRequirements
}

func fromSpec(pod *corev1.Pod) allocation {
	a := allocation{pod: &pod.Spec.Resources, containers: map[string]corev1.ResourceRequirements{}}
	each(&pod.Spec, func(c *corev1.Container) { a.containers[c.Name] = c.Resources })
	return a
}

// fromStatus is empty unless a resize waits, of this agent or the kubelet that had the node before.
func fromStatus(pod *corev1.Pod) allocation {
	a := allocation{containers: map[string]corev1.ResourceRequirements{}}
	waits := false
	for _, c := range pod.Status.Conditions {
		waits = waits || c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue
	}
	if !waits {
		return a
	}
	spec := fromSpec(pod)
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range list {
			if s.Resources == nil || s.AllocatedResources == nil {
				continue
			}
			r := spec.containers[s.Name] // with the claims, which stay
			r.Requests, r.Limits = s.AllocatedResources, s.Resources.Limits
			a.containers[s.Name] = r
		}
	}
	return a
}

// each visits the containers that can have resources.
func each(spec *corev1.PodSpec, visit func(*corev1.Container)) {
	for i := range spec.InitContainers {
		visit(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		visit(&spec.Containers[i])
	}
}
