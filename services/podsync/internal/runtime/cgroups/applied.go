package cgroups

import (
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The CPU that the least shares and the least quota stand for, in thousandths.
const (
	leastRequest = minShares
	leastLimit   = minQuota * 1000 / 100_000
)

// Applied is the CPU and memory that the pod's cgroup has, as the kubelet reads them back from it for the pod's status
// (KEP-5419). It follows from what Create and Update write, with the rounding of the kernel's files; nothing is read.
// What has no limit is left out, and so is CPU that the kernel doesn't tell from its least, unless the pod as a whole
// asks for more. Nil where pods have no cgroup of their own.
func (m *Manager) Applied(pod *corev1.Pod) *corev1.ResourceRequirements {
	if !m.cfg.PerQOS {
		return nil
	}
	whole := corev1.ResourceRequirements{}
	if r := pod.Spec.Resources; r != nil {
		whole = *r
	}
	l := LimitsOf(pod, m.cfg)
	out := &corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	if cpu := milliOfShares(l.CPUShares, m.v2); max(cpu, whole.Requests.Cpu().MilliValue()) > leastRequest {
		out.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(cpu, resource.DecimalSI)
	}
	if l.CPUQuota > 0 {
		if cpu := l.CPUQuota * 1000 / int64(l.CPUPeriod); max(cpu, whole.Limits.Cpu().MilliValue()) > leastLimit {
			out.Limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(cpu, resource.DecimalSI)
		}
	}
	// The kernel counts whole pages.
	if page := int64(os.Getpagesize()); l.Memory >= page {
		out.Limits[corev1.ResourceMemory] = *resource.NewQuantity(l.Memory/page*page, resource.BinarySI)
	}
	return out
}

// milliOfShares is the CPU that shares stand for, in thousandths; with version 2 the weight in between is coarser: 100m
// become 79m.
func milliOfShares(shares uint64, v2 bool) int64 {
	if v2 {
		shares = minShares + (weight(shares)-1)*(maxShares-minShares)/9999
	}
	return int64((shares*1000 + sharesOfCPU - 1) / sharesOfCPU)
}
