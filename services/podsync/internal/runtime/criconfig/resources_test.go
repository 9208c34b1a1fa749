package criconfig

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestOOMScore(t *testing.T) {
	for _, c := range []struct {
		name     string
		memory   string
		change   func(*corev1.Pod)
		capacity uint64
		want     int64
	}{
		{"a quarter", "2Gi", nil, 8 << 30, 750},
		{"next to nothing", "1", nil, 8 << 30, 999},
		{"all", "8Gi", nil, 8 << 30, 3},
		{"more than all", "80Gi", nil, 8 << 30, 3},
		{"unknown machine", "1Gi", nil, 0, 999},
		{"node critical", "1Gi", func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }, 8 << 30, -997},
		{"best effort", "1Gi", func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBestEffort }, 8 << 30, 1000},
	} {
		pod, container := onePod(func(p *corev1.Pod, ct *corev1.Container) {
			ct.Resources.Requests = corev1.ResourceList{"memory": resource.MustParse(c.memory)}
			if c.change != nil {
				c.change(p)
			}
		})
		node := testNode()
		node.MemoryCapacity = c.capacity
		if got := resourcesOf(node, pod, container, false).OomScoreAdj; got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

func TestCPU(t *testing.T) {
	const usual = 100 * time.Millisecond
	for _, c := range []struct {
		request, limit         string
		exclusive, quotaOff    bool
		period                 time.Duration
		shares, quota, period_ int64
	}{
		{"", "", false, false, usual, 2, 0, 100000},
		{"500m", "", false, false, usual, 512, 0, 100000},
		{"", "2", false, false, usual, 2048, 200000, 100000},
		{"1m", "1m", false, false, usual, 2, 1000, 100000},
		{"1000", "1000", false, false, usual, 262144, 100000000, 100000},
		{"1", "1", false, false, 5 * time.Millisecond, 1024, 5000, 5000},
		{"1", "1", true, false, usual, 1024, -1, 100000},
		{"1", "1", true, true, usual, 1024, 0, 0},
	} {
		pod, container := onePod(func(_ *corev1.Pod, ct *corev1.Container) {
			ct.Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
			if c.request != "" {
				ct.Resources.Requests["cpu"] = resource.MustParse(c.request)
			}
			if c.limit != "" {
				ct.Resources.Limits["cpu"] = resource.MustParse(c.limit)
			}
		})
		node := testNode()
		node.CPUCFSQuota, node.CPUCFSQuotaPeriod = !c.quotaOff, c.period
		r := resourcesOf(node, pod, container, c.exclusive)
		if r.CpuShares != c.shares || r.CpuQuota != c.quota || r.CpuPeriod != c.period_ {
			t.Errorf("%+v: got %v", c, r)
		}
	}
}

func TestSwap(t *testing.T) {
	burstable := func(_ *corev1.Pod, c *corev1.Container) {
		c.Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("2Gi")}
	}
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod, *corev1.Container)
		node   func(*Node)
		want   string
		v1     int64
	}{
		{"in proportion", burstable, func(*Node) {}, "1073741824", 0},
		{"switched off", burstable, func(n *Node) { n.SwapBehavior = "NoSwap" }, "0", 0},
		{"no controller", burstable, func(n *Node) { n.SwapController = false }, "", 0},
		{"best effort", nil, func(*Node) {}, "0", 0},
		{"static", func(p *corev1.Pod, ct *corev1.Container) {
			burstable(p, ct)
			p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		}, func(*Node) {}, "0", 0},
		{"critical", func(p *corev1.Pod, ct *corev1.Container) {
			burstable(p, ct)
			p.Spec.Priority = ref(int32(2000001000))
		}, func(*Node) {}, "0", 0},
		{"version 1", func(p *corev1.Pod, ct *corev1.Container) {
			burstable(p, ct)
			ct.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("3Gi")}
		}, func(n *Node) { n.CgroupV2 = false }, "", 3 << 30},
	} {
		pod, container := onePod(c.change)
		node := testNode()
		node.CgroupV2, node.SwapController, node.SwapBehavior, node.SwapCapacity = true, true, "LimitedSwap", 4<<30
		c.node(node)
		r := resourcesOf(node, pod, container, false)
		if r.Unified["memory.swap.max"] != c.want || r.MemorySwapLimitInBytes != c.v1 {
			t.Errorf("%s: got %v", c.name, r)
		}
	}
}

func TestOOMKillsTheGroup(t *testing.T) {
	pod, container := onePod(nil)
	node := testNode()
	node.CgroupV2, node.SingleProcessOOMKill = true, false
	if got := resourcesOf(node, pod, container, false).Unified["memory.oom.group"]; got != "1" {
		t.Errorf("got %q", got)
	}
}
