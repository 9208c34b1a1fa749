package evict

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// LimitsStorage reports whether the pod has a limit on local storage.
func LimitsStorage(pod *corev1.Pod) bool {
	_, ok := storageLimit(pod)
	return ok || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return limited(&v) }) ||
		len(containerLimits(pod)) > 0
}

// limited reports whether the volume has a size limit. One in memory is held by its filesystem and counts as well, as
// with the kubelet.
func limited(v *corev1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() == 1
}

func storageLimit(pod *corev1.Pod) (resource.Quantity, bool) {
	q, ok := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	return q, ok
}

func containerLimits(pod *corev1.Pod) map[string]*resource.Quantity {
	limits := map[string]*resource.Quantity{}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if q := c.Resources.Limits.StorageEphemeral(); q.Value() != 0 {
			limits[c.Name] = q
		}
	}
	return limits
}

// OverLimit reports whether the pod uses more local storage than it may, by which limit, and says so in the kubelet's
// words.
func OverLimit(c Candidate, l Layout) (by Signal, message string) {
	if c.Stats == nil {
		return "", ""
	}
	for i := range c.Pod.Spec.Volumes {
		v := &c.Pod.Spec.Volumes[i]
		if limited(v) && over(bytesOf(volumeStats(v.Name, c.Stats)), v.EmptyDir.SizeLimit) {
			return emptyDirLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name,
				v.EmptyDir.SizeLimit.String())
		}
	}
	if limit, ok := storageLimit(c.Pod); ok && over(bytesOf(c.Stats.EphemeralStorage), &limit) {
		return podLimit, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ",
			limit.String())
	}
	limits := containerLimits(c.Pod)
	for i := range c.Stats.Containers {
		stats := &c.Stats.Containers[i]
		used := bytesOf(stats.Logs)
		if !l.ImageFS {
			used += bytesOf(stats.Rootfs)
		}
		if limit := limits[stats.Name]; limit != nil && over(used, limit) {
			return containerLimit, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ",
				stats.Name, limit.String())
		}
	}
	return "", ""
}

func over(used int64, limit *resource.Quantity) bool {
	return resource.NewQuantity(used, resource.BinarySI).Cmp(*limit) > 0
}
