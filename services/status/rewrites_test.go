package status

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// A controller that resets a condition whenever it sees another value isn't written against without end. Once it leaves
// the pod alone, what others change is put right at once again.
func TestAControllerThatUndoesEachWrite(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		undo := func() {
			t.Helper()
			pod := server.pod("default/web")
			if c := condition(pod.Status.Conditions, corev1.PodReady); c.Status == corev1.ConditionTrue {
				c.Status = corev1.ConditionFalse
				server.put(pod)
				r.watched()
			}
		}
		server.calls()
		for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(50 * time.Millisecond) {
			undo()
			synctest.Wait()
		}
		if n := len(server.calls()); n < 55 || n > 80 {
			t.Errorf("%d requests in ten minutes", n)
		}
		time.Sleep(2 * quiet)
		synctest.Wait()
		server.calls()
		undo()
		r.wantCalls("patch default/web")
	})
}

// slow is a server whose patches take a while.
type slow struct{ *server }

func (s slow) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	time.Sleep(100 * time.Millisecond)
	return s.server.PatchPodStatus(ctx, namespace, name, patch)
}

// What changes on the node while a write is under way is written after it, however often that happens.
func TestChangesDuringAWriteAreNotPutOff(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.startWith(slow{server})()
		r.must(r.pods.Set(uid, p))
		verdict := bus.Key(uid, "app", topic.ProbeReadiness)
		for i := range 40 {
			r.must(r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", fmt.Sprint(i)))),
				r.probes.Set(verdict, topic.Probe{ContainerID: fmt.Sprint(i), Success: true}))
			time.Sleep(90 * time.Millisecond)
		}
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if got := server.pod("default/web").Status.ContainerStatuses[0].ContainerID; got != "containerd://39" {
			t.Errorf("the container is still %s", got)
		}
	})
}

// The readiness gates of a pod may open and close often. That undoes nothing.
func TestAReadinessGateIsFollowedAtOnce(t *testing.T) {
	p := apiPod(func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	})
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		for i := range 20 {
			want := corev1.ConditionTrue
			if i%2 == 1 {
				want = corev1.ConditionFalse
			}
			pod := server.pod("default/web")
			if gate := condition(pod.Status.Conditions, "example.com/gate"); gate != nil {
				gate.Status = want
			} else {
				pod.Status.Conditions = append(pod.Status.Conditions,
					corev1.PodCondition{Type: "example.com/gate", Status: want})
			}
			server.put(pod)
			r.watched()
			if got := statusOf(server.pod("default/web").Status, corev1.PodReady); got != want {
				t.Errorf("Ready %s while the gate is %s", got, want)
			}
			time.Sleep(time.Second)
		}
	})
}
