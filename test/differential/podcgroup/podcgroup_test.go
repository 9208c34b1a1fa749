package podcgroup

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"kubelot.dev/services/podsync/podsynctest"
)

// seed makes the pods; another one finds others.
const seed = 14

func TestRandomPods(t *testing.T) {
	r := rand.New(rand.NewPCG(seed, seed))
	protected := map[string]int{}
	for range 20000 {
		pod := randomPod(r)
		quota, on, tiered := r.IntN(2) == 0, r.IntN(3) > 0, r.IntN(3) > 0
		period := []time.Duration{100 * time.Millisecond, 5 * time.Millisecond}[r.IntN(2)]
		policy := kubeletconfig.NoneMemoryReservationPolicy
		if tiered {
			policy = kubeletconfig.TieredReservationMemoryReservationPolicy
		}
		want := cm.ResourceConfigForPod(pod, quota, uint64(period.Microseconds()), on, policy)
		got := podsynctest.CgroupLimits(pod, podsynctest.CgroupConfig{
			CPUCFSQuota: quota, CPUCFSQuotaPeriod: period, Memory: podsynctest.Protection{On: on, Tiered: tiered},
		})
		if got.CPUShares != *want.CPUShares || got.CPUQuota != limit(want.CPUQuota) || got.Memory != limit(want.Memory) ||
			!maps.Equal(got.HugePages, want.HugePageLimit) || !maps.Equal(got.Unified, want.Unified) {
			t.Fatalf("pod %+v with %+v\nin a quota %t, gate %t, policy %s: got\n%+v, Kubernetes has\n%s", pod.Spec.Containers,
				pod.Spec.Resources, quota, on, policy, got, text(want))
		}
		for file := range got.Unified {
			protected[file]++
		}
	}
	if len(protected) != 2 || protected["memory.min"] < 100 || protected["memory.low"] < 100 {
		t.Errorf("too few pods have protected memory: %v", protected)
	}
}

// limit is a limit as kubelot has it: -1 for none.
func limit(of *int64) int64 {
	if of == nil || *of == 0 {
		return -1
	}
	return *of
}

func text(c *cm.ResourceConfig) string {
	line := func(name string, v *int64) string {
		return name + " " + resource.NewQuantity(limit(v), resource.DecimalSI).String() + " "
	}
	shares := int64(*c.CPUShares)
	out := line("shares", &shares) + line("quota", c.CPUQuota) + line("memory", c.Memory)
	for file, value := range c.Unified {
		out += file + " " + value + " "
	}
	return out
}

func randomPod(r *rand.Rand) *corev1.Pod {
	pod := &corev1.Pod{}
	always := corev1.ContainerRestartPolicyAlways
	guaranteed := r.IntN(3) == 0
	for range r.IntN(3) {
		c := corev1.Container{Resources: randomResources(r, guaranteed)}
		if r.IntN(2) == 0 {
			c.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for range 1 + r.IntN(3) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: randomResources(r, guaranteed)})
	}
	if r.IntN(4) == 0 {
		whole := randomResources(r, guaranteed)
		pod.Spec.Resources = &whole
	}
	if r.IntN(4) == 0 {
		pod.Spec.Overhead = randomList(r)
	}
	return pod
}

func randomResources(r *rand.Rand, guaranteed bool) corev1.ResourceRequirements {
	if guaranteed {
		list := corev1.ResourceList{"cpu": quantity(r, "1m", "500m", "2"), "memory": quantity(r, "1Mi", "100Mi", "1G")}
		return corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
	}
	requests, limits := randomList(r), randomList(r)
	for name, most := range limits {
		if q, ok := requests[name]; ok && q.Cmp(most) > 0 {
			limits[name] = q
		}
	}
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// randomList has some resources, or none.
func randomList(r *rand.Rand) corev1.ResourceList {
	list := corev1.ResourceList{}
	if r.IntN(2) == 0 {
		list["cpu"] = quantity(r, "0", "1m", "15m", "250m", "1", "1500m", "300")
	}
	if r.IntN(2) == 0 {
		list["memory"] = quantity(r, "0", "1", "4095", "10Mi", "128M", "2Gi")
	}
	if r.IntN(8) == 0 {
		list["hugepages-2Mi"] = quantity(r, "2Mi", "8Mi")
	}
	return list
}

func quantity(r *rand.Rand, of ...string) resource.Quantity {
	return resource.MustParse(of[r.IntN(len(of))])
}
