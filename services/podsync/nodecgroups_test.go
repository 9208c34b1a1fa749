package podsync

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/podsync/internal/runtime/cgroups"
	"kubelot.dev/services/podsync/internal/worker/metrics"
)

// reserve makes a cgroup below the test's own, as an administrator does.
func (b *bed) reserve(name string) {
	b.t.Helper()
	for _, mount := range hierarchies() {
		if err := os.MkdirAll(filepath.Join(mount, b.cgroupRoot, name), 0o755); err != nil && len(hierarchies()) == 1 {
			b.t.Fatal(err)
		}
	}
}

// One reserved cgroup that isn't there, or kubepods' limits that can't be set, keep no other from its limits.
func TestEachReservedCgroupIsHeldByItself(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ownCgroups()
		b.reserve("kube_daemons")
		b.configure = func(c *config.Config) {
			k := &c.Kubelet
			k.EnforceNodeAllocatable = []string{"pods", "system-reserved-compressible", "kube-reserved-compressible"}
			k.SystemReserved, k.KubeReserved = map[string]string{"cpu": "250m"}, map[string]string{"cpu": "500m"}
			k.SystemReservedCgroup, k.KubeReservedCgroup = b.cgroupRoot+"/system", b.cgroupRoot+"/kube_daemons"
		}
		h, _ := b.hang("")
		h.fails = &cgroups.LimitsError{Cgroup: "/kubepods", Err: errors.New("device or resource busy")}
		b.start(fromAPI)
		b.node(110)
		if got, want := b.shares("kube_daemons"), either("512", "20"); got != want {
			t.Errorf("the daemons' cgroup has %s, want %s", got, want)
		}
		failed := b.event("FailedNodeAllocatableEnforcement").Message
		for _, part := range []string{"/kubepods: device or resource busy", b.cgroupRoot + "/system"} {
			if !strings.Contains(failed, part) {
				t.Errorf("the Event about what has failed is %q, want %q in it", failed, part)
			}
		}
		b.reserve("system")
		b.pass(time.Minute)
		if got, want := b.shares("system"), either("256", "10"); got != want {
			t.Errorf("the system's cgroup has %s, want %s", got, want)
		}
		var told []string
		for _, e := range b.told("NodeAllocatableEnforced") {
			told = append(told, e.Message)
		}
		want := []string{
			"Updated Node Allocatable limit across pods", "Updated limits on system reserved cgroup " + b.cgroupRoot + "/system",
			"Updated limits on kube reserved cgroup " + b.cgroupRoot + "/kube_daemons",
		}
		if strings.Join(told, "\n") != strings.Join(want, "\n") {
			t.Errorf("Events %q, want %q", told, want)
		}
	})
}

func TestMoreReservedThanThereIs(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.configure = func(c *config.Config) { c.Kubelet.KubeReserved = map[string]string{"memory": "100Ti"} }
		b.start(fromAPI)
		b.node(110)
		const want = `Resource "memory" has a reservation of 100Ti but capacity of `
		if state, message := b.health(); state != topic.Unhealthy || !strings.Contains(message, want) {
			t.Errorf("health is %s %q, want unhealthy with %q", state, message, want)
		}
		b.deliver(fromAPI, pod("web", "u1"))
		b.wantRunning()
	})
}

func TestSwapNeedsVersion2(t *testing.T) {
	if cgroups.Unified() {
		t.Skip("this machine has cgroup v2")
	}
	counted, err := metrics.New(prometheus.NewRegistry(), 0)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{}
	cfg.Kubelet.FailCgroupV1, cfg.Kubelet.CgroupDriver = new(false), "cgroupfs"
	if _, err := newCgroups(cfg, counted); err != nil {
		t.Error(err)
	}
	cfg.Kubelet.MemorySwap.SwapBehavior = "LimitedSwap"
	if _, err := newCgroups(cfg, counted); err == nil || !strings.Contains(err.Error(), "memorySwap.swapBehavior") {
		t.Errorf("%v, want what to change in the configuration", err)
	}
}
