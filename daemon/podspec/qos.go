package podspec

import corev1 "k8s.io/api/core/v1"

// QOSClass is the pod's QoS class as the API server computed it, or by the documented rule: Guaranteed when every
// container has equal CPU and memory requests and limits, BestEffort when none has any, else Burstable. Resources
// of the whole pod (KEP-2837) count instead of the containers' where they are given, even if they are empty.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	if r := pod.Spec.Resources; r != nil {
		return classOf([]corev1.ResourceRequirements{*r})
	}
	var all []corev1.ResourceRequirements
	for c := range InitAndMain(&pod.Spec) {
		all = append(all, c.Resources)
	}
	return classOf(all)
}

func classOf(all []corev1.ResourceRequirements) corev1.PodQOSClass {
	guaranteed, asks := true, false
	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			if !request.IsZero() || !limit.IsZero() {
				asks = true
			}
			if limit.IsZero() || request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !asks:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}
