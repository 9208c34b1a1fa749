package podstatus

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// podResources states what the pod as a whole was allocated, and what it has (KEP-5419): the sums over its containers,
// with the pod-level resources in their place and the overhead. While it runs, CPU and memory are those of its cgroup
// where that says more precisely what they are. The kubelet begins with the same; later it leaves out of a running
// pod's what the cgroup doesn't know, such as ephemeral storage, which is kept here.
func podResources(status *corev1.PodStatus, in Input) {
	options := resourcehelper.PodResourcesOptions{}
	status.AllocatedResources = resourcehelper.PodRequests(in.Pod, options)
	has := &corev1.ResourceRequirements{}
	if of := in.Pod.Spec.Resources; of != nil {
		has.Claims = of.DeepCopy().Claims
	}
	has.Requests, has.Limits = maps.Clone(status.AllocatedResources), resourcehelper.PodLimits(in.Pod, options)
	if in.Cgroup != nil && status.Phase == corev1.PodRunning {
		correct(has.Requests, in.Cgroup.Requests)
		correct(has.Limits, in.Cgroup.Limits)
	}
	status.Resources = has
}

// correct sets what is known better. Equal amounts keep the notation of the spec.
func correct(list, better corev1.ResourceList) {
	for name, q := range better {
		if has, ok := list[name]; !ok || has.Cmp(q) != 0 {
			list[name] = q
		}
	}
}
