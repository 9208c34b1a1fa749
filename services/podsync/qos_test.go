package podsync

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/daemon/config"
)

// hierarchies are this machine's, by where they are mounted; on cgroup v2 there is one.
func hierarchies() []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	all, _ := filepath.Glob("/sys/fs/cgroup/*")
	return all
}

// ownCgroups gives the bed a cgroup below which it makes its own; what is left goes with the test.
func (b *bed) ownCgroups() {
	b.t.Helper()
	if os.Getuid() != 0 {
		b.t.Skip("cgroups are root's")
	}
	b.cgroupRoot = fmt.Sprintf("/kubelot-test-podsync-%d", os.Getpid())
	b.t.Cleanup(func() {
		for _, mount := range hierarchies() {
			var dirs []string
			_ = filepath.WalkDir(filepath.Join(mount, b.cgroupRoot), func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for _, dir := range slices.Backward(dirs) {
				if err := os.Remove(dir); err != nil {
					b.t.Errorf("the test left a cgroup: %v", err)
				}
			}
		}
	})
}

// control is what a control file of a cgroup below the test's own says.
func (b *bed) control(cgroup, controller, v1, v2 string) string {
	b.t.Helper()
	for _, file := range []string{
		filepath.Join("/sys/fs/cgroup", controller, b.cgroupRoot, cgroup, v1), filepath.Join("/sys/fs/cgroup",
			b.cgroupRoot, cgroup, v2),
	} {
		if text, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	b.t.Fatalf("cgroup %s has no %s", cgroup, v1)
	return ""
}

func (b *bed) shares(cgroup string) string {
	b.t.Helper()
	return b.control(cgroup, "cpu", "cpu.shares", "cpu.weight")
}

// either is the value of the machine's cgroup version.
func either(v1, v2 string) string {
	if len(hierarchies()) == 1 {
		return v2
	}
	return v1
}

func requesting(p *corev1.Pod, cpu string) *corev1.Pod {
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return p
}

// Nothing waits for housekeeping: a pod without its class's share of the CPU is slow from its first moment.
func TestTheBurstableClassHasTheSharesOfItsPodsAtOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ownCgroups()
		check := func(when, v1, v2 string) {
			t.Helper()
			if got, want := b.shares("kubepods/burstable"), either(v1, v2); got != want {
				t.Errorf("%s: the burstable class has %s, want %s", when, got, want)
			}
		}
		stop := b.start(fromAPI, fromFile)
		b.node(110)
		web, db := requesting(pod("web", "u1"), "500m"), requesting(pod("db", "u2"), "250m")
		b.deliver(fromAPI, web, db)
		check("before the second source has delivered", "768", "30")
		b.deliver(fromFile)
		b.deliver(fromAPI, web)
		check("after a pod has gone", "512", "20")

		stop()
		b.start(fromAPI, fromFile)
		b.node(110)
		check("after a restart", "512", "20")
		b.deliver(fromFile)
		check("before the API has delivered", "512", "20")
		b.deliver(fromAPI)
		check("without pods", "2", "1")
	})
}

func TestPodsAreHeldToWhatIsNotReserved(t *testing.T) {
	for name, c := range map[string]struct {
		set    func(*config.Config)
		v1, v2 string
	}{
		"an amount of CPU": {func(c *config.Config) {
			c.Kubelet.SystemReserved = map[string]string{"cpu": "500m", "pid": "1000"}
		}, "1536", "59"},
		"CPUs by number": {func(c *config.Config) {
			c.Kubelet.SystemReserved, c.Kubelet.ReservedSystemCPUs = map[string]string{"cpu": "500m", "pid": "1000"}, "1"
		}, "1024", "39"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.ownCgroups()
				b.configure = func(cfg *config.Config) {
					c.set(cfg)
					cfg.Kubelet.EnforceNodeAllocatable = []string{"pods"}
				}
				b.start(fromAPI)
				b.node(110)
				if got, want := b.shares("kubepods"), either(c.v1, c.v2); got != want {
					t.Errorf("kubepods has %s of the CPU, want %s", got, want)
				}
				if got := b.control("kubepods", "pids", "pids.max", "pids.max"); got != "3000" {
					t.Errorf("kubepods may have %s processes, want the machine's 4000 less those reserved", got)
				}
			})
		})
	}
}
