package evict

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// parts are what of a pod's disk usage counts.
type parts struct{ root, logs, volumes bool }

// partsOf are the parts that are on the signal's filesystem.
func partsOf(s Signal, l Layout) parts {
	switch {
	case !l.ImageFS:
		return parts{root: true, logs: true, volumes: true}
	case s.images() && l.ContainerFS:
		return parts{} // images only: no pod has a part of them
	case s.images():
		return parts{root: true}
	case s.node() && !l.ContainerFS:
		return parts{logs: true, volumes: true}
	default:
		return parts{root: true, logs: true, volumes: true}
	}
}

// usage is what the pod uses of what the signal says is short.
func usage(s Signal, l Layout, pod *corev1.Pod, stats *statsv1alpha1.PodStats) int64 {
	switch {
	case s.Disk() && s.Resource() == inodes:
		return diskUsage(partsOf(s, l), inodesOf, pod, stats)
	case s.Disk():
		return diskUsage(partsOf(s, l), bytesOf, pod, stats)
	case s == PIDAvailable && stats.ProcessStats != nil:
		return value(stats.ProcessStats.ProcessCount)
	case s != PIDAvailable && stats.Memory != nil:
		return value(stats.Memory.WorkingSetBytes)
	}
	return 0
}

func diskUsage(p parts, count func(*statsv1alpha1.FsStats) int64, pod *corev1.Pod,
	stats *statsv1alpha1.PodStats,
) int64 {
	var sum int64
	for i := range stats.Containers {
		if p.root {
			sum += count(stats.Containers[i].Rootfs)
		}
		if p.logs {
			sum += count(stats.Containers[i].Logs)
		}
	}
	if !p.volumes {
		return sum
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; local(v) {
			sum += count(volumeStats(v.Name, stats))
		}
	}
	return sum
}

// measured reports whether all figures are there that the pod's usage for the signal is made of, and none is older than
// since. What doesn't run and has no figures uses nothing: that is known too.
func measured(s Signal, l Layout, c Candidate, since time.Time) bool {
	switch {
	case c.Stats == nil:
		return !c.Runs
	case s.Disk():
		return knownDisk(partsOf(s, l), c, since)
	case s == PIDAvailable:
		return c.Stats.ProcessStats != nil // they have no time; stats leaves out older ones
	}
	m := c.Stats.Memory
	return m != nil && m.WorkingSetBytes != nil && (m.Time.Unix() <= 0 || m.Time.Unix() >= since.Unix())
}

// knownDisk is Known for a filesystem. The content of volumes that aren't the pod's own isn't counted.
func knownDisk(p parts, c Candidate, since time.Time) bool {
	for i := range c.Stats.Containers {
		stats := &c.Stats.Containers[i]
		if p.root && !counted(stats.Rootfs, since) || p.logs && !counted(stats.Logs, since) {
			return false
		}
	}
	return !p.volumes || !slices.ContainsFunc(c.Pod.Spec.Volumes, func(v corev1.Volume) bool {
		return local(&v) && v.HostPath == nil && v.GitRepo == nil && !counted(volumeStats(v.Name, c.Stats), since)
	})
}

// counted reports whether the figures are there and not older than since. Their times have whole seconds; without one
// they are of any age, but nothing at no time is what containerd says of a writable layer that it has not counted.
func counted(s *statsv1alpha1.FsStats, since time.Time) bool {
	if s != nil && s.Time.Unix() <= 0 {
		return bytesOf(s) > 0
	}
	return s != nil && s.Time.Unix() >= since.Unix()
}

// local reports whether the volume takes space on the root directory's filesystem.
func local(v *corev1.Volume) bool {
	return v.HostPath != nil || v.GitRepo != nil || v.ConfigMap != nil || v.EmptyDir != nil &&
		v.EmptyDir.Medium == corev1.StorageMediumDefault
}

// volumeStats are the volume's figures; nil where there are none.
func volumeStats(name string, stats *statsv1alpha1.PodStats) *statsv1alpha1.FsStats {
	for i := range stats.VolumeStats {
		if stats.VolumeStats[i].Name == name {
			return &stats.VolumeStats[i].FsStats
		}
	}
	return nil
}

func bytesOf(s *statsv1alpha1.FsStats) int64 {
	if s == nil {
		return 0
	}
	return value(s.UsedBytes)
}

func inodesOf(s *statsv1alpha1.FsStats) int64 {
	if s == nil {
		return 0
	}
	return value(s.InodesUsed)
}

func value(n *uint64) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

// request is the pod's request of a resource; its overhead counts where it requests any.
func request(pod *corev1.Pod, name corev1.ResourceName) *resource.Quantity {
	sum := resource.Quantity{}
	options := resourcehelper.PodResourcesOptions{
		ExcludeOverhead:             true,
		SkipContainerLevelResources: resourcehelper.IsPodLevelResourcesSet(pod),
	}
	if q, ok := resourcehelper.PodRequests(pod, options)[name]; ok {
		sum.Add(q)
	}
	if q, ok := pod.Spec.Overhead[name]; ok && !sum.IsZero() {
		sum.Add(q)
	}
	return &sum
}
