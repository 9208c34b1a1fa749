package criconfig

import (
	"maps"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Golden values by the formula of KEP-2570, for pages of 4 KiB: memory.high is request + 0.9 × (limit − request),
// rounded down to a page, and the node's allocatable memory stands for a limit that isn't there.
func TestMemoryQoS(t *testing.T) {
	if os.Getpagesize() != 4096 {
		t.Skip("the values are those of pages of 4 KiB")
	}
	type values = map[string]string
	none := values{"memory.min": "0", "memory.low": "0"}
	for name, c := range map[string]struct {
		class           corev1.PodQOSClass
		request, limit  string
		untiered, tiers values
	}{
		"best effort":               {corev1.PodQOSBestEffort, "", "", none, none},
		"burstable, without memory": {corev1.PodQOSBurstable, "", "", none, none},
		"guaranteed":                {corev1.PodQOSGuaranteed, "64Mi", "64Mi", none, values{"memory.min": "67108864"}},
		"burstable with a limit": {
			corev1.PodQOSBurstable, "100Mi", "200Mi",
			// 104857600 + 94371840 = 199229440, which is 48640 pages
			values{"memory.min": "0", "memory.low": "0", "memory.high": "199229440"},
			values{"memory.low": "104857600", "memory.high": "199229440"},
		},
		"burstable, in odd bytes": {
			corev1.PodQOSBurstable, "1000000", "2000000",
			// 1000000 + 900000 = 1900000, which is 463.9 pages; 463 × 4096
			values{"memory.min": "0", "memory.low": "0", "memory.high": "1896448"},
			values{"memory.low": "1000000", "memory.high": "1896448"},
		},
		"burstable without a limit": {
			corev1.PodQOSBurstable, "1Gi", "",
			// 1073741824 + 0.9 × 6442450944 = 6871947673.6, which is 1677721.6 pages; 1677721 × 4096
			values{"memory.min": "0", "memory.low": "0", "memory.high": "6871945216"},
			values{"memory.low": "1073741824", "memory.high": "6871945216"},
		},
		"burstable with a limit only": {
			corev1.PodQOSBurstable, "", "100Mi",
			// 94371840 is 23040 pages
			values{"memory.min": "0", "memory.low": "0", "memory.high": "94371840"},
			values{"memory.min": "0", "memory.low": "0", "memory.high": "94371840"},
		},
		"request and limit are equal, of a burstable pod": {
			corev1.PodQOSBurstable, "100Mi", "100Mi", none, values{"memory.low": "104857600"},
		},
		"more than the node has": {corev1.PodQOSBurstable, "8Gi", "", none, values{"memory.low": "8589934592"}},
		"less than a page": {
			corev1.PodQOSBurstable, "4095", "4096", none, values{"memory.low": "4095"},
		},
	} {
		pod, container := onePod(func(p *corev1.Pod, ct *corev1.Container) {
			p.Status.QOSClass = c.class
			ct.Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
			if c.request != "" {
				ct.Resources.Requests["memory"] = resource.MustParse(c.request)
			}
			if c.limit != "" {
				ct.Resources.Limits["memory"] = resource.MustParse(c.limit)
			}
		})
		node := testNode()
		if got := resourcesOf(node, pod, container, false).Unified; got != nil {
			t.Errorf("%s, without the gate: %v", name, got)
		}
		for tiered, want := range map[bool]values{false: c.untiered, true: c.tiers} {
			node.MemoryQoS = MemoryQoS{On: true, Tiered: tiered, Throttling: 0.9, Allocatable: 7 << 30}
			if got := resourcesOf(node, pod, container, false).Unified; !maps.Equal(got, want) {
				t.Errorf("%s, tiered %t: %v, want %v", name, tiered, got, want)
			}
			resized := maps.Clone(want)
			if resized["memory.high"] == "" {
				resized["memory.high"] = "max"
			}
			if got := Resized(node, pod, container, false).Unified; !maps.Equal(got, resized) {
				t.Errorf("%s, tiered %t, resized: %v, want %v", name, tiered, got, resized)
			}
		}
	}
}

func TestMemoryQoSGoesWithOtherValues(t *testing.T) {
	pod, container := onePod(func(p *corev1.Pod, ct *corev1.Container) {
		p.Status.QOSClass = corev1.PodQOSBurstable
		ct.Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("1Gi")}
	})
	node := testNode()
	node.CgroupV2, node.SwapController, node.SingleProcessOOMKill = true, true, false
	// Where the node's memory isn't known, nothing is throttled.
	node.MemoryQoS = MemoryQoS{On: true, Tiered: true, Throttling: 0.5}
	want := map[string]string{"memory.oom.group": "1", "memory.swap.max": "0", "memory.low": "1073741824"}
	if got := resourcesOf(node, pod, container, false).Unified; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Resized(testNode(), pod, container, false).Unified; got != nil {
		t.Errorf("resized without the gate: %v", got)
	}
	// What the sandbox is made with is the runtime's business.
	sandbox, err := Sandbox(node, SandboxInput{Pod: pod})
	if err != nil {
		t.Fatal(err)
	}
	if got := sandbox.Linux.Resources.Unified; !maps.Equal(got, map[string]string{"memory.oom.group": "1"}) {
		t.Errorf("of the sandbox: %v", got)
	}
}

// The quota holds what has CPUs of its own where the gate DisableCPUQuotaWithExclusiveCPUs is off.
func TestQuotaWithExclusiveCPUs(t *testing.T) {
	pod, container := onePod(func(_ *corev1.Pod, ct *corev1.Container) {
		two := corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}
		ct.Resources = corev1.ResourceRequirements{Requests: two, Limits: two}
	})
	for held, want := range map[bool]int64{false: -1, true: 200000} {
		node := testNode()
		node.QuotaWithExclusiveCPUs = held
		if got := resourcesOf(node, pod, container, true).CpuQuota; got != want {
			t.Errorf("held %t: the container's quota is %d, want %d", held, got, want)
		}
		if got := Resized(node, pod, container, true).CpuQuota; got != want {
			t.Errorf("held %t: the quota of the resized container is %d, want %d", held, got, want)
		}
		sandbox, err := Sandbox(node, SandboxInput{Pod: pod, ExclusiveCPUs: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := sandbox.Linux.Resources.CpuQuota; got != want {
			t.Errorf("held %t: the sandbox's quota is %d, want %d", held, got, want)
		}
	}
}
