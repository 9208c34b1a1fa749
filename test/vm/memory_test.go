package vm

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// The node's memory gets short on cgroup v2. The pod that takes most above its request is evicted, nothing else is
// harmed, and gc listens to the kernel's warning.
func TestMemoryPressure(t *testing.T) {
	notQuick(t)
	const margin = 400 << 20
	threshold := availableMemory(t) - margin
	configure(t, fmt.Sprintf("evictionHard: {memory.available: '%d'}\nevictionPressureTransitionPeriod: 5s\n", threshold))
	pid := crew(t)["kubelot-gc.service"].MainPID
	if got := in(t, "ls -l /proc/"+pid+"/fd | grep -c /proc/pressure/memory || true"); got != "1" {
		t.Errorf("gc holds %s descriptors of the kernel's memory pressure, want one", got)
	}
	hogged(t, 700, "")
}

// The pods' own memory gets short on cgroup v2, by the signal allocatableMemory.available: the most that they may have
// in all is small, and the node has plenty.
func TestPodsMemoryPressure(t *testing.T) {
	notQuick(t)
	const allocatable, threshold, hog = 700, 300, 500 // MiB
	if has := availableMemory(t) >> 20; has < hog+2*threshold {
		t.Fatalf("the machine has only %d MiB available: the node's memory would get short too", has)
	}
	configure(t, fmt.Sprintf("systemReserved: {memory: %dKi}\nevictionHard: {memory.available: %dMi}\n"+
		"evictionPressureTransitionPeriod: 20s\n", kilobytes(t, "MemTotal")-allocatable<<10, threshold))
	cgroupHas(t, kubepods, "memory.max", fmt.Sprint(allocatable<<20))
	hogged(t, hog, fmt.Sprintf("%dMi, available: ", threshold))
	var counts []string
	for line := range strings.Lines(string(nodePage(t, "metrics"))) {
		if strings.HasPrefix(line, "kubelet_evictions{") {
			counts = append(counts, strings.TrimSpace(line))
		}
	}
	if len(counts) != 1 || !strings.Contains(counts[0], `eviction_signal="allocatableMemory.available"`) {
		t.Errorf("the metrics of evictions are %q", counts)
	}
}

// hogged runs a pod that takes so many MiB and requests few, and others that must not mind. It is evicted, and the node
// says that its memory is short, until it is gone. Its Event names the threshold.
func hogged(t *testing.T, takes int, threshold string) {
	t.Helper()
	w := newWorkload(t)
	s := watchSteady(t, w)
	w.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: hog}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'dd if=/dev/zero bs=%dM count=1 | (sleep 3600; cat >/dev/null)']
    resources: {requests: {memory: 32Mi}}
`, takes))
	w.Event("hog", "Evicted", "The node was low on resource: memory. Threshold quantity: "+threshold)
	p := w.Phase("hog", corev1.PodFailed)
	if p.Status.Reason != "Evicted" || !strings.Contains(p.Status.Message, "Container app was using ") {
		t.Errorf("status of the evicted pod: %s, %s", p.Status.Reason, p.Status.Message)
	}
	pressure := func(want corev1.ConditionStatus) {
		t.Helper()
		kit.Follow(t, "condition MemoryPressure="+string(want), watchNode, func(n *corev1.Node) bool {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeMemoryPressure {
					return c.Status == want
				}
			}
			return false
		})
	}
	pressure(corev1.ConditionTrue)
	pressure(corev1.ConditionFalse)
	s.check(t)
}
