package crash

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// daemons are those that pods need.
var daemons = []string{"podsync", "pleg", "volume", "probe", "status", "lease", "bus"}

// processes are daemons of which each stands for another process.
func processes() []string {
	if bed.Compact() {
		return daemons[:1]
	}
	return daemons
}

// TestKilledDaemon kills each daemon several times while many pods start, and again while they stop.
func TestKilledDaemon(t *testing.T) {
	for _, daemon := range processes() {
		t.Run(daemon, func(t *testing.T) {
			ns := bed.Namespace(t)
			ns.Apply(settings)
			watchFlips(t, ns)
			before := newHerd(t, ns, "before", 3)
			before.running(3)

			began := time.Now()
			h := newHerd(t, ns, daemon, herdSize)
			for _, started := range []int{1, 5, 11} {
				kit.Eventually(t, "the pods to start", atLeast(h.alive, started))
				kill(t, bed, daemon)
			}
			h.running(herdSize)
			t.Logf("%d pods were Ready after %v", herdSize, time.Since(began).Round(time.Millisecond))

			began = time.Now()
			h.delete()
			for _, left := range []int{15, 6} {
				kit.Eventually(t, "the pods to stop", atMost(h.alive, left))
				kill(t, bed, daemon)
			}
			h.gone()
			t.Logf("%d pods were gone after %v", herdSize, time.Since(began).Round(time.Millisecond))
			unchanged(t, ns, before)
		})
	}
}

// unchanged checks that the pods that ran before are the same, in the same containers, and as Ready as before.
func unchanged(t *testing.T, ns *kit.Namespace, h *herd) {
	t.Helper()
	for _, was := range h.pods {
		is := ns.Running(was.Name)
		if a, b := kit.Status(was, "main"), kit.Status(is, "main"); a.ContainerID != b.ContainerID || b.RestartCount != 0 {
			t.Errorf("pod %s ran in %s and runs in %s, restarts %d", was.Name, a.ContainerID, b.ContainerID, b.RestartCount)
		}
		if a, b := readyCondition(was), readyCondition(is); !a.LastTransitionTime.Equal(&b.LastTransitionTime) {
			t.Errorf("pod %s: Ready turned: %v, then %v", was.Name, a, b)
		}
		if err := h.startedOnce(is); err != nil {
			t.Errorf("pod %s: %v", is.Name, err)
		}
	}
}

func readyCondition(p *corev1.Pod) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c
		}
	}
	return corev1.PodCondition{}
}
