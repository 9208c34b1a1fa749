package cgroups

import (
	"maps"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// list reads pairs of resource and quantity.
func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func container(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func podOf(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
}

func TestResources(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	full := list("cpu", "500m", "memory", "64Mi")
	none := map[int64]int64{}
	cfg := Config{CPUCFSQuota: true, CPUCFSQuotaPeriod: 100 * time.Millisecond, PodPidsLimit: 100}
	sidecar := podOf(container(list("cpu", "100m"), nil))
	sidecar.Spec.InitContainers = []corev1.Container{container(list("cpu", "50m"), nil), container(list("cpu", "2"), nil)}
	sidecar.Spec.InitContainers[0].RestartPolicy = &always
	overhead := podOf(container(full, full))
	overhead.Spec.Overhead = list("cpu", "250m", "memory", "1Mi")
	podLevel := podOf(container(nil, nil))
	podLevel.Spec.Resources = &corev1.ResourceRequirements{
		Requests: list("cpu", "1"),
		Limits:   list("cpu", "2", "memory", "1Gi"),
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want Limits
	}{
		"best effort": {
			podOf(container(nil, nil)),
			Limits{CPUShares: 2, CPUQuota: -1, Memory: -1, Pids: 100, HugePages: none},
		},
		"guaranteed": {
			podOf(container(full, full), container(full, full)),
			Limits{CPUShares: 1024, CPUQuota: 100000, CPUPeriod: 100000, Memory: 128 << 20, Pids: 100, HugePages: none},
		},
		"burstable without limits": {
			podOf(container(list("cpu", "250m"), nil)),
			Limits{CPUShares: 256, CPUQuota: -1, Memory: -1, Pids: 100, HugePages: none},
		},
		"burstable, one container unlimited": {
			podOf(container(list("cpu", "250m"), full), container(list("cpu", "1m"), nil)),
			Limits{CPUShares: 257, CPUQuota: -1, Memory: -1, Pids: 100, HugePages: none},
		},
		"burstable, memory limited": {
			podOf(container(list("cpu", "1m"), list("memory", "1Mi"))),
			Limits{CPUShares: 2, CPUQuota: -1, Memory: 1 << 20, Pids: 100, HugePages: none},
		},
		"tiny cpu limit": {
			podOf(container(list("cpu", "1m"), list("cpu", "2m"))),
			Limits{CPUShares: 2, CPUQuota: 1000, CPUPeriod: 100000, Memory: -1, Pids: 100, HugePages: none},
		},
		"init container dominates, next to its sidecar": {
			sidecar,
			Limits{CPUShares: 2099, CPUQuota: -1, Memory: -1, Pids: 100, HugePages: none},
		},
		"overhead": {
			overhead,
			Limits{CPUShares: 768, CPUQuota: 75000, CPUPeriod: 100000, Memory: 65 << 20, Pids: 100, HugePages: none},
		},
		"pod level": {
			podLevel,
			Limits{CPUShares: 1024, CPUQuota: 200000, CPUPeriod: 100000, Memory: 1 << 30, Pids: 100, HugePages: none},
		},
		"huge pages": {
			podOf(container(list("cpu", "1", "hugepages-2Mi", "8Mi"), list("hugepages-2Mi", "8Mi"))),
			Limits{CPUShares: 1024, CPUQuota: -1, Memory: -1, Pids: 100, HugePages: map[int64]int64{2 << 20: 8 << 20}},
		},
	} {
		if got := LimitsOf(c.pod, cfg); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
	if got := LimitsOf(podOf(container(full, full)), Config{}); got.CPUQuota != -1 || got.Pids != 0 {
		t.Errorf("without quota and pid limit: %+v", got)
	}
}

func TestNodeLimits(t *testing.T) {
	l := NodeLimits(list("cpu", "4", "memory", "8Gi", "pid", "1000"), list("cpu", "500m", "pid", "2000", "memory", "1Gi"))
	got := enforced(l)
	want := Limits{CPUShares: 3584, Memory: 7 << 30, Pids: 0, HugePages: map[int64]int64{}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("enforced: %+v", got)
	}
	got = unenforced(list("cpu", "4", "memory", "8Gi", "pid", "1000"))
	if got.CPUShares != 4096 || got.Memory != -1 || got.Pids != -1 {
		t.Errorf("not enforced: %+v", got)
	}
	for _, pages := range got.library(true, []string{"2MB", "1GB"}).HugetlbLimit {
		if pages.Limit != 1<<62 {
			t.Errorf("not enforced: %+v", pages)
		}
	}
}

func TestLibraryForm(t *testing.T) {
	l := Limits{CPUShares: 1024, HugePages: map[int64]int64{2 << 20: 8 << 20}, Pids: 7}
	v2 := l.library(true, []string{"2MB", "1GB"})
	if v2.CpuWeight != 39 || v2.CpuShares != 0 || *v2.PidsLimit != 7 {
		t.Errorf("v2: %+v", v2)
	}
	if len(v2.HugetlbLimit) != 2 || v2.HugetlbLimit[0].Limit != 0 || v2.HugetlbLimit[1].Limit != 8<<20 {
		t.Errorf("huge pages: %+v %+v", v2.HugetlbLimit[0], v2.HugetlbLimit[1])
	}
	if v1 := l.library(false, nil); v1.CpuShares != 1024 || v1.CpuWeight != 0 || v1.HugetlbLimit != nil {
		t.Errorf("v1: %+v", v1)
	}
	for shares, want := range map[uint64]uint64{0: 0, 2: 1, 1024: 39, 262144: 10000, 1 << 40: 10000} {
		if got := weight(shares); got != want {
			t.Errorf("weight(%d) = %d, want %d", shares, got, want)
		}
	}
	for size, want := range map[int64]string{
		100: "100B", 64 << 10: "64KB", 2 << 20: "2MB", 1 << 30: "1GB", 16 << 30: "16GB",
	} {
		if got := PageSize(size); got != want {
			t.Errorf("PageSize(%d) = %s, want %s", size, got, want)
		}
	}
}

func TestHugePages(t *testing.T) {
	got := HugePages(list(
		"hugepages-2Mi", "4Mi", "hugepages-1Gi", "1Gi", "hugepages-x", "1", "hugepages-0", "1", "memory", "1"))
	if want := map[int64]int64{2 << 20: 4 << 20, 1 << 30: 1 << 30}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAWeightIsReadBackAsItWasSet(t *testing.T) {
	for w := uint64(1); w <= 10000; w++ {
		if got := weight(sharesOf(w)); got != w {
			t.Fatalf("weight %d is read as %d shares, which weigh %d", w, sharesOf(w), got)
		}
	}
}
