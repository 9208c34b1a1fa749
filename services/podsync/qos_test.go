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

// burstableShares is what the kernel gives the burstable class, in its own unit.
func (b *bed) burstableShares() string {
	b.t.Helper()
	for _, file := range []string{"/sys/fs/cgroup/cpu" + b.cgroupRoot + "/kubepods/burstable/cpu.shares", "/sys/fs/cgroup" + b.cgroupRoot + "/kubepods/burstable/cpu.weight"} {
		if text, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	b.t.Fatal("no cgroup of burstable pods")
	return ""
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
			if got, want := b.burstableShares(), either(v1, v2); got != want {
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
