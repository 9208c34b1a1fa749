package vm

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/vm/guest"
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
	w := newWorkload(t)
	s := watchSteady(t, w)
	w.Apply(`
apiVersion: v1
kind: Pod
metadata: {name: hog}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'dd if=/dev/zero bs=700M count=1 | (sleep 3600; cat >/dev/null)']
    resources: {requests: {memory: 32Mi}}
`)
	w.Event("hog", "Evicted", "The node was low on resource: memory. Threshold quantity: ")
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

// availableMemory is what the node says that it has, in bytes.
func availableMemory(t testing.TB) int64 {
	t.Helper()
	var summary struct {
		Node struct {
			Memory struct {
				AvailableBytes int64 `json:"availableBytes"`
			} `json:"memory"`
		} `json:"node"`
	}
	out := bed.Kubectl(t, "get", "--raw", "/api/v1/nodes/"+guest.Name+"/proxy/stats/summary")
	if err := json.Unmarshal([]byte(out), &summary); err != nil || summary.Node.Memory.AvailableBytes == 0 {
		t.Fatalf("no available memory in the node's summary: %v\n%s", err, out)
	}
	return summary.Node.Memory.AvailableBytes
}
