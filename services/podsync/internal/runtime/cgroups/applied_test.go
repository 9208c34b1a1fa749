package cgroups

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

func TestApplied(t *testing.T) {
	has := func(requests, limits corev1.ResourceList) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Requests: requests, Limits: limits}
	}
	podLevel := func(requests, limits corev1.ResourceList) *corev1.Pod {
		pod := podOf(container(nil, nil))
		pod.Spec.Resources = has(requests, limits)
		return pod
	}
	full := list("cpu", "100m", "memory", "10M")
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		v1, v2 *corev1.ResourceRequirements
	}{
		"best effort": {podOf(container(nil, nil)), has(list(), list()), has(list(), list())},
		"guaranteed, in whole pages": {
			podOf(container(full, full)),
			has(list("cpu", "100m"), list("cpu", "100m", "memory", "9764Ki")),
			has(list("cpu", "79m"), list("cpu", "100m", "memory", "9764Ki")),
		},
		"limits of one container bound no pod": {
			podOf(container(list("cpu", "1"), full), container(nil, nil)),
			has(list("cpu", "1"), list()), has(list("cpu", "975m"), list()),
		},
		"less than the kernel tells apart": {
			podOf(container(list("cpu", "1m"), list("cpu", "2m", "memory", "100"))), has(list(), list()), has(list(), list()),
		},
		"less than a weight tells apart": {
			podOf(container(list("cpu", "20m"), nil)), has(list("cpu", "20m"), list()), has(list(), list()),
		},
		"the same of the pod as a whole": {
			podLevel(list("cpu", "20m"), list("cpu", "20m")),
			has(list("cpu", "20m"), list("cpu", "20m")), has(list("cpu", "2m"), list("cpu", "20m")),
		},
	} {
		for v2, want := range map[bool]*corev1.ResourceRequirements{false: c.v1, true: c.v2} {
			m := &Manager{cfg: Config{PerQOS: true, CPUCFSQuota: true, CPUCFSQuotaPeriod: 100 * time.Millisecond}, v2: v2}
			if got := m.Applied(c.pod); !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s, v2 %v: %v, want %v", name, v2, got, want)
			}
		}
	}
	guaranteed := podOf(container(full, full))
	m := &Manager{cfg: Config{PerQOS: true, CPUCFSQuota: true, CPUCFSQuotaPeriod: 5 * time.Millisecond}}
	if got := m.Applied(guaranteed).Limits.Cpu().String(); got != "200m" {
		t.Errorf("100m of a period of 5 ms are %s, want the least quota's 200m", got)
	}
	m = &Manager{cfg: Config{PerQOS: true}}
	if got, ok := m.Applied(guaranteed).Limits[corev1.ResourceCPU]; ok {
		t.Errorf("without quotas the limit is %s", got.String())
	}
	if got := (&Manager{}).Applied(guaranteed); got != nil {
		t.Errorf("without cgroups of pods: %v", got)
	}
}
