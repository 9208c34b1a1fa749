package gc

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

const (
	// hogMiB is how much the hog takes.
	hogMiB = 1500
	// prompt is how soon after the threshold is crossed the eviction shows at the API server: within 2 s on a machine that does
	// nothing else, and anywhere sooner than with a look every 10 s.
	prompt = 8 * time.Second
)

// The pods' own memory gets short: what they may have is limited here so that nothing else on this machine matters. The pod that
// uses most above its request is evicted at once, and nothing else dies.
func TestPodsMemoryPressure(t *testing.T) {
	total := field(t, "/proc/meminfo", "MemTotal:") >> 10
	const allocatable, threshold = 1600, 300
	bed := start(t, fmt.Sprintf("systemReserved: {memory: %dMi}\nevictionHard: {memory.available: %dMi}\nevictionPressureTransitionPeriod: 10s\n", total-allocatable, threshold), nil)
	group := "/sys/fs/cgroup/memory" + bed.Bed.CgroupRoot + "/kubepods"
	short := func() bool {
		used := number(t, group+"/memory.usage_in_bytes") - field(t, group+"/memory.stat", "total_inactive_file")
		return number(t, group+"/memory.limit_in_bytes")-used < threshold<<20
	}
	hogged(t, bed, short, fmt.Sprintf("The node was low on resource: memory. Threshold quantity: %dMi, available: ", threshold))
}

// The node's memory gets short. The threshold is set by what is available right before, with a margin, since other programs run here.
func TestNodeMemoryPressure(t *testing.T) {
	const margin = 900
	bed := start(t, "evictionPressureTransitionPeriod: 10s\n", nil)
	threshold := available(t)>>20 - margin
	configure(t, bed, fmt.Sprintf("evictionHard: {memory.available: %dMi}\nevictionPressureTransitionPeriod: 10s\n", threshold))
	short := func() bool { return available(t) < threshold<<20 }
	if short() {
		t.Skip("other programs have taken more memory than the margin")
	}
	hogged(t, bed, short, fmt.Sprintf("The node was low on resource: memory. Threshold quantity: %dMi, available: ", threshold))
}

// hogged runs a pod that makes memory short, and others that must not mind.
func hogged(t *testing.T, bed *kit.Bed, short func() bool, message string) {
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
	crossed := make(chan time.Time, 1)
	go func() {
		for t.Context().Err() == nil {
			if short() {
				crossed <- time.Now()
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	ns.Apply(pod("hog", fmt.Sprintf(`
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, "dd if=/dev/zero bs=%dM count=1 | (sleep 3600; cat > /dev/null)"]
    resources: {requests: {memory: 32Mi}}
`, hogMiB)))
	// It is told when its end has begun; the hog itself takes its grace period of a second, and the kernel some time for its memory.
	event := ns.Event("hog", "Evicted", message)
	at, since := time.Now(), <-crossed
	took := at.Sub(since)
	p := evicted(t, ns, "hog", message, true)
	t.Logf("evicted %s after the threshold was crossed (%s): %s", took, since.Format(time.TimeOnly+".000"), p.Status.Message)
	if took > prompt {
		t.Errorf("the eviction took %s; want %s at most", took, prompt)
	}
	if !strings.Contains(p.Status.Message, "Container app was using ") || !strings.Contains(p.Status.Message, ", request is 32Mi, has larger consumption of memory. ") {
		t.Errorf("message %q", p.Status.Message)
	}
	if a := event.Annotations; a["offending_containers"] != "app" || a["starved_resource"] != "memory" ||
		!strings.Contains(p.Status.Message, "was using "+a["offending_containers_usage"]+", request") {
		t.Errorf("the Event's annotations are %v", a)
	}
	condition(t, bed, corev1.NodeMemoryPressure, corev1.ConditionTrue)
	kit.Eventually(t, "the pod's end", func() error {
		if short() && kit.Status(ns.Phase("hog", corev1.PodFailed), "app").State.Terminated != nil {
			return errors.New("memory is still short")
		}
		return nil
	})
	condition(t, bed, corev1.NodeMemoryPressure, corev1.ConditionFalse)
	unharmed(t, ns, "good", "idle")
	kit.Eventually(t, "Event EvictionThresholdMet", func() error { return nodeEvent(t, bed, "EvictionThresholdMet", "Attempting to reclaim memory") })
}
