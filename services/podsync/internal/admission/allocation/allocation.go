// Package allocation distinguishes the resources that a pod requests from those that it holds. Users may change the
// request of a running pod (KEP-1287). Until the node allocates the new request, the node counts what the pod holds.
package allocation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"kubelot.dev/daemon/podspec"
)

// Keep returns the pod with the resources that it holds, and whether it asks for others. before is the pod as it was
// kept last; nil if that isn't known: then what its status says of a resize that waits counts. Neither is changed.
func Keep(pod, before *corev1.Pod) (kept *corev1.Pod, resize bool) {
	allocated := fromStatus(pod)
	if before != nil {
		allocated = fromSpec(before)
	}
	same := equality.Semantic.DeepEqual
	differs := allocated.pod != nil && !same(*allocated.pod, pod.Spec.Resources)
	for c := range podspec.InitAndMain(&pod.Spec) {
		r, known := allocated.containers[c.Name]
		differs = differs || known && !same(r, c.Resources)
	}
	if !differs {
		return pod, false
	}
	kept = pod.DeepCopy()
	if allocated.pod != nil {
		kept.Spec.Resources = (*allocated.pod).DeepCopy()
	}
	for c := range podspec.InitAndMain(&kept.Spec) {
		if r, known := allocated.containers[c.Name]; known {
			c.Resources = *r.DeepCopy()
		}
	}
	return kept, true
}

// allocation are resources by container; pod is nil where nothing is known of those of the pod as a whole.
type allocation struct {
	pod        **corev1.ResourceRequirements
	containers map[string]corev1.ResourceRequirements
}

func fromSpec(pod *corev1.Pod) allocation {
	a := allocation{pod: &pod.Spec.Resources, containers: map[string]corev1.ResourceRequirements{}}
	for c := range podspec.InitAndMain(&pod.Spec) {
		a.containers[c.Name] = c.Resources
	}
	return a
}

// fromStatus has the containers that held other resources than they request now, as this agent or the kubelet that had
// the node before has said. Where the status says that a resize waits, it has all containers: it may be about limits
// alone.
func fromStatus(pod *corev1.Pod) allocation {
	a := allocation{containers: map[string]corev1.ResourceRequirements{}}
	spec, waits := fromSpec(pod), Stated(&pod.Status, corev1.PodResizePending) != nil
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		r := spec.containers[s.Name] // with the claims, which stay
		if s.Resources == nil || s.AllocatedResources == nil || !waits && sameAmounts(r.Requests, s.AllocatedResources) {
			continue
		}
		r.Limits = limits(r, s.AllocatedResources, s.Resources.Limits)
		r.Requests = s.AllocatedResources
		a.containers[s.Name] = r
	}
	return a
}

// Stated is the condition of a resize that the status says is true; nil for none.
func Stated(s *corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// limits are those that go with the allocated requests. The ones that the container has may be from before these were
// allocated: a limit that is to be equal to its request follows that, and none is below it.
func limits(spec corev1.ResourceRequirements, allocated, has corev1.ResourceList) corev1.ResourceList {
	list := has.DeepCopy()
	for name, limit := range has {
		request, ok := allocated[name]
		if equal := spec.Limits.Name(name, "").Equal(*spec.Requests.Name(name, "")); ok &&
			(equal || limit.Cmp(request) < 0) {
			list[name] = request
		}
	}
	return list
}

// Same reports whether both forms of a pod have the same CPU and memory, all in all and in each container.
func Same(a, b *corev1.Pod) bool {
	if !equality.Semantic.DeepEqual(a.Spec.Resources, b.Spec.Resources) {
		return false
	}
	for c := range podspec.InitAndMain(&a.Spec) {
		if other := Of(b, c.Name); other == nil || !SameResources(&c.Resources, other) {
			return false
		}
	}
	return true
}

// SameResources compares CPU and memory, which is all that can be resized.
func SameResources(a, b *corev1.ResourceRequirements) bool {
	return sameAmounts(a.Requests, b.Requests) && sameAmounts(a.Limits, b.Limits)
}

func sameAmounts(a, b corev1.ResourceList) bool {
	return a.Cpu().Equal(*b.Cpu()) && a.Memory().Equal(*b.Memory())
}

// Of are the resources of the container with that name; nil if there is none.
func Of(pod *corev1.Pod, container string) *corev1.ResourceRequirements {
	for c := range podspec.InitAndMain(&pod.Spec) {
		if c.Name == container {
			return &c.Resources
		}
	}
	return nil
}

// Restarts reports whether a container has to be restarted to get from the resources it has to those of its spec.
func Restarts(c *corev1.Container, has *corev1.ResourceRequirements) bool {
	for _, policy := range c.ResizePolicy {
		if policy.RestartPolicy != corev1.RestartContainer {
			continue
		}
		name := policy.ResourceName
		if c.Resources.Requests.Name(name, "").Cmp(*has.Requests.Name(name, "")) != 0 ||
			c.Resources.Limits.Name(name, "").Cmp(*has.Limits.Name(name, "")) != 0 {
			return true
		}
	}
	return false
}
