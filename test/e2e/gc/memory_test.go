package gc

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// The pods' own memory gets short: what they may have is limited here so that nothing else on this machine matters. The
// pod that uses most above its request is evicted at once, and nothing else dies.
func TestPodsMemoryPressure(t *testing.T) {
	total := field(t, "/proc/meminfo", "MemTotal:") >> 10
	const allocatable, threshold = 1600, 300
	bed := start(t, fmt.Sprintf("systemReserved: {memory: %dMi}\nevictionHard: {memory.available: %dMi}\n",
		total-allocatable, threshold)+transition, nil)
	group := "/sys/fs/cgroup/memory" + bed.Bed.CgroupRoot + "/kubepods"
	short := func() bool {
		used := number(t, group+"/memory.usage_in_bytes") - field(t, group+"/memory.stat", "total_inactive_file")
		return number(t, group+"/memory.limit_in_bytes")-used < threshold<<20
	}
	hogged(t, bed, 1500, func() (func() bool, string) {
		return short, fmt.Sprintf("The node was low on resource: memory. Threshold quantity: %dMi, available: ", threshold)
	})
}

// The node's memory gets short. The threshold is set by what is available right before, with a margin, since other
// programs run here: so much may they take before the hog does, and so much is free again when it is gone. With a
// smaller margin, a build that runs at the same time makes memory short again, and the next pods are evicted. The hog
// also takes what other programs free meanwhile.
func TestNodeMemoryPressure(t *testing.T) {
	bed := start(t, transition, nil)
	margin := max(int(available(t)>>20)/4, 1000)
	hogged(t, bed, 2*margin+4000, func() (func() bool, string) {
		threshold := (available(t)>>20 - int64(margin)) | 1 // a whole number of GiB is told as such
		configure(t, bed, fmt.Sprintf("evictionHard: {memory.available: %dMi}\n", threshold)+transition)
		short := func() bool { return available(t) < threshold<<20 }
		if short() {
			t.Skip("other programs have taken more memory than the margin")
		}
		return short, fmt.Sprintf("The node was low on resource: memory. Threshold quantity: %dMi, available: ", threshold)
	})
}

// hogged runs a pod that makes memory short by taking ever more, at most so many MiB, and others that must not mind.
// Arm is called right before it; it returns whether memory is short, and the begin of the pod's message. How soon it is
// evicted is held by gc's own tests.
func hogged(t *testing.T, bed *kit.Bed, most int, arm func() (short func() bool, message string)) {
	const step = 100 // MiB
	ns := bed.Namespace(t)
	ns.Apply(pod("good", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, resources: {requests: {memory: 64Mi}}}
`) + "---\n" + pod("idle", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER}
`))
	ns.Running("good")
	ns.Running("idle")
	before := bed.KubeNode(t)
	short, message := arm()
	ns.Apply(pod("hog", fmt.Sprintf(`
  containers:
  - name: app
    image: busybox:1.36
    command:
    - sh
    - -c
    - |
      for i in $(seq %d); do
        dd if=/dev/zero bs=%dM count=1 | (sleep 3600; cat > /dev/null) &
        sleep 0.2
      done
      wait
    resources: {requests: {memory: 32Mi}}
`, most/step, step)))
	event := ns.Event("hog", "Evicted", message)
	p := evicted(t, ns, "hog", message, true)
	if !strings.Contains(p.Status.Message, "Container app was using ") ||
		!strings.Contains(p.Status.Message, ", request is 32Mi, has larger consumption of memory. ") {
		t.Errorf("message %q", p.Status.Message)
	}
	if a := event.Annotations; a["offending_containers"] != "app" || a["starved_resource"] != "memory" ||
		!strings.Contains(p.Status.Message, "was using "+a["offending_containers_usage"]+", request") {
		t.Errorf("the Event's annotations are %v", a)
	}
	pressed := condition(t, bed, before, corev1.NodeMemoryPressure, corev1.ConditionTrue)
	bed.NodeSays(t, "this node runs out of memory, so BestEffort pods are refused and pods are evicted")
	ns.Says("hog", "this node has ended it: this node ran out of memory (", "its container app used ", "and requests 32Mi")
	kit.Eventually(t, "the pod's end", func() error {
		if short() && kit.Status(ns.Phase("hog", corev1.PodFailed), "app").State.Terminated != nil {
			return errors.New("memory is still short")
		}
		return nil
	})
	condition(t, bed, pressed, corev1.NodeMemoryPressure, corev1.ConditionFalse)
	unharmed(t, ns, "good", "idle")
	kit.Eventually(t, "Event EvictionThresholdMet", func() error {
		return nodeEvent(t, bed, "EvictionThresholdMet", "Attempting to reclaim memory")
	})
}
