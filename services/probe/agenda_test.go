package probe

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/probe/internal/check"
)

// withPods makes a tracker with pods that have a readiness probe each.
func withPods(now time.Time, pods int) *tracker {
	t := newTracker(2)
	t.sync(now)
	for i := range pods {
		appear(t, now, i, fmt.Sprintf("c%d", i))
	}
	return t
}

// appear is a pod that runs, with the container of that ID; every third has a probe that connects.
func appear(t *tracker, now time.Time, i int, id string) {
	spec := &corev1.Probe{
		PeriodSeconds: 1 + int32(i%3),
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
	}
	if i%3 == 0 {
		spec.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1"}}
	}
	uid := fmt.Sprintf("u%d", i)
	t.setPod(now, uid, topic.Pod{
		Pod:       &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", ReadinessProbe: spec}}}},
		Lifecycle: topic.Syncing,
	})
	t.setSeen(now, uid, topic.PodObservation{
		Ref:        topic.Ref{UID: uid},
		Containers: []topic.Container{{Name: "app", ID: id, State: topic.ContainerRunning, StartedAt: now}},
	})
}

// Every probe that is to run is in one place and no other, and runs when its time has come and its limiter has room,
// whatever pods do.
func TestProbesAreInOnePlace(t *testing.T) {
	const pods, steps = 30, 20000
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1_000_000, 0)
	tracker := withPods(now, pods)
	var running []*probe
	for step := range steps {
		now = now.Add(time.Duration(random.IntN(200)) * time.Millisecond)
		switch i := random.IntN(pods); random.IntN(12) {
		case 0:
			appear(tracker, now, i, fmt.Sprintf("c%d-%d", i, step))
		case 1:
			tracker.dropPod(now, fmt.Sprintf("u%d", i))
			tracker.dropSeen(now, fmt.Sprintf("u%d", i))
		case 2, 3, 4, 5, 6, 7:
			for range min(len(running), 1+random.IntN(3)) {
				at := random.IntN(len(running))
				var err error
				if random.IntN(5) == 0 {
					err = fmt.Errorf("can't be run")
				}
				tracker.done(now, running[at], check.Result{Success: random.IntN(4) > 0}, err)
				running = slices.Delete(running, at, at+1)
			}
		}
		begun, wake := tracker.next(now)
		running = append(running, begun...)
		checkPlaces(t, tracker, now, wake)
		if t.Failed() {
			t.Fatalf("step %d", step)
		}
	}
}

func checkPlaces(t *testing.T, tracker *tracker, now, wake time.Time) {
	t.Helper()
	all := 0
	for _, owner := range tracker.pods {
		for _, p := range owner.probes {
			all++
			limiter := tracker.limiter(p)
			onAgenda := tracker.agenda.Has(p)
			waits := p.waits && limiter.due[p.class].Has(p)
			switch under := tracker.under[p]; {
			case onAgenda && waits, waits && under, under && onAgenda, !onAgenda && !waits && !under:
				t.Errorf("%s: on the agenda %t, waits %t, under way %t; want one of them", p.id, onAgenda, waits, under)
			case onAgenda && !p.due.After(now):
				t.Errorf("%s has been due for %s and is on the agenda", p.id, now.Sub(p.due))
			case onAgenda && (wake.IsZero() || wake.After(p.due)):
				t.Errorf("%s is due at %s, the timer wakes at %s", p.id, p.due, wake)
			case waits && limiter.counting.Len() < limiter.ease && !limiter.yields:
				t.Errorf("%s waits although %d of %d run", p.id, limiter.counting.Len(), limiter.ease)
			}
		}
	}
	withdrawn := 0
	for p := range tracker.under {
		if !tracker.has(p) {
			withdrawn++
		}
	}
	if placed := tracker.agenda.Len() + tracker.exec.waiting() + tracker.network.waiting() +
		len(tracker.under) - withdrawn; placed != all {
		t.Errorf("%d probes are in some place, %d are to run", placed, all)
	}
}

// With more commands due than may run, each end of one looks at all that wait: that must cost next to nothing, or a
// machine that is too slow for its probes spends its time on deciding which is next.
func TestWaitingProbesCostNothing(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	tracker := withPods(now, 300)
	now = now.Add(10 * time.Second)
	tracker.next(now)
	if limiter := &tracker.exec; limiter.counting.Len() != limiter.ease || limiter.waiting() < 100 {
		t.Fatalf("%d run and %d wait; want that some run and most wait", limiter.counting.Len(), limiter.waiting())
	}
	if allocated := testing.AllocsPerRun(100, func() { tracker.next(now) }); allocated != 0 {
		t.Errorf("to find that nothing may begin allocates %v objects", allocated)
	}
}
