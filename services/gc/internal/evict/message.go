package evict

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Reason is the reason of evicted pods and of their Events; Disruption that of their DisruptionTarget condition
// (KEP-3329).
const (
	Reason     = "Evicted"
	Disruption = corev1.PodReasonTerminationByKubelet
)

// The keys of the annotations of the Event Evicted, by which monitoring knows who used too much of what.
const (
	keyPod             = "offending_pod"
	keyPodUsage        = "offending_pod_usage"
	keyContainers      = "offending_containers"
	keyContainersUsage = "offending_containers_usage"
	keyResource        = "starved_resource"
)

// Message says why the pod is evicted, in the kubelet's words and in its Event's annotations; none where no usage is
// known.
func Message(t Threshold, o Observation, c Candidate) (message string, annotations map[string]string) {
	name := t.Signal.Resource()
	var text strings.Builder
	fmt.Fprintf(&text, "The node was low on resource: %v. ", name)
	fmt.Fprintf(&text, "Threshold quantity: %v, available: %v. ", t.Value.of(t.Signal, o.Capacity),
		t.Signal.quantity(o.Available))
	if c.Stats == nil {
		return text.String(), nil
	}
	annotations = map[string]string{keyResource: string(name)}
	if name == corev1.ResourceMemory && resourcehelper.IsPodLevelResourcesSet(c.Pod) && c.Stats.Memory != nil {
		if want, ok := c.Pod.Spec.Resources.Requests[name]; ok {
			used := resource.NewQuantity(value(c.Stats.Memory.WorkingSetBytes), resource.BinarySI)
			fmt.Fprintf(&text, "Pod %s was using %s, request is %s, has larger consumption of %v. ", c.Pod.Name, used,
				want.String(), name)
			annotations[keyPod], annotations[keyPodUsage] = c.Pod.Name, used.String()
		}
	}
	var names, usages []string
	specs := slices.Concat(c.Pod.Spec.Containers, c.Pod.Spec.InitContainers)
	for i := range c.Stats.Containers {
		stats := &c.Stats.Containers[i]
		at := slices.IndexFunc(specs, func(spec corev1.Container) bool { return spec.Name == stats.Name })
		used := containerUsage(name, stats)
		if at < 0 || used == nil {
			continue
		}
		if want := specs[at].Resources.Requests[name]; used.Cmp(want) > 0 {
			fmt.Fprintf(&text, "Container %s was using %s, request is %s, has larger consumption of %v. ", stats.Name, used,
				want.String(), name)
			names, usages = append(names, stats.Name), append(usages, used.String())
		}
	}
	annotations[keyContainers], annotations[keyContainersUsage] = strings.Join(names, ","), strings.Join(usages, ",")
	return text.String(), annotations
}

// containerUsage is what the container uses of the resource; nil where nobody knows.
func containerUsage(name corev1.ResourceName, s *statsv1alpha1.ContainerStats) *resource.Quantity {
	switch {
	case name == corev1.ResourceMemory && s.Memory != nil && s.Memory.WorkingSetBytes != nil:
		return resource.NewQuantity(value(s.Memory.WorkingSetBytes), resource.BinarySI)
	case name == corev1.ResourceEphemeralStorage && s.Rootfs != nil && s.Rootfs.UsedBytes != nil && s.Logs != nil &&
		s.Logs.UsedBytes != nil:
		return resource.NewQuantity(bytesOf(s.Rootfs)+bytesOf(s.Logs), resource.BinarySI)
	}
	return nil
}

// hardGrace is how long a pod may take to end after a hard threshold, in seconds.
const hardGrace = 1

// GracePeriod is how long the pod may take to end, in seconds: hardGrace, or after a soft threshold its own, bounded by
// evictionMaxPodGracePeriod unless that is negative.
func GracePeriod(t Threshold, most int32, pod *corev1.Pod) int64 {
	if t.Hard {
		return hardGrace
	}
	switch own := pod.Spec.TerminationGracePeriodSeconds; {
	case own != nil && (most < 0 || *own < int64(most)):
		return *own
	case most < 0:
		return corev1.DefaultTerminationGracePeriodSeconds
	}
	return int64(most)
}
