package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// objectOf is what podsync's watch tells of the server's pod.
func objectOf(p *corev1.Pod, version string) topic.APIPod {
	return topic.APIPod{Ref: topic.RefOf(p), ResourceVersion: version, Status: p.Status}
}

// An API server that was restored from a backup has the pod as it was, at a version that has been before.
func TestARestoredAPIServerGetsTheStatusAgain(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		written := server.pod("default/web")
		r.must(r.pods.objects.Set(uid, objectOf(written, written.ResourceVersion)))
		r.server.calls()

		server.put(p.Pod)
		r.must(r.pods.objects.Set(uid, objectOf(p.Pod, "5")))
		if got := server.pod("default/web").Status.Phase; got != corev1.PodRunning {
			t.Errorf("phase %q after the restore", got)
		}
	})
}

// A pod that the API server had lost, and has again after a restore.
func TestAPodThatComesBackIsWrittenAgain(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		r.must(r.pods.objects.Delete(uid))
		server.put(p.Pod)
		r.must(r.pods.objects.Set(uid, objectOf(p.Pod, "5")))
		if got := server.pod("default/web").Status.Phase; got != corev1.PodRunning {
			t.Errorf("phase %q of the pod that came back", got)
		}
	})
}

// The node lifecycle controller calls the pods of a silent node unready, mirror pods among them; their node agent takes that back.
func TestAMirrorPodThatSomebodyElseCalledUnready(t *testing.T) {
	p, patch := staticPod()
	server := newServer()
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.node.Set("", registeredNode()), r.sources.Set("", topic.Sources{Ready: true, Pods: []string{uid}}), r.pods.Set(uid, p), r.patches.Set(uid, patch))
		made := server.pod("default/web")
		tell := func(p *corev1.Pod) {
			r.must(r.mirrors.Set(string(p.UID), topic.MirrorPod{Ref: topic.RefOf(p), Hash: "h1", ResourceVersion: p.ResourceVersion, Status: p.Status}))
		}
		tell(made)
		r.server.calls()

		condition(made.Status.Conditions, corev1.PodReady).Status = corev1.ConditionFalse
		server.put(made)
		tell(server.pod("default/web"))
		r.wantCalls("patch default/web")
		if got := statusOf(server.pod("default/web").Status, corev1.PodReady); got != corev1.ConditionTrue {
			t.Errorf("Ready %s", got)
		}
	})
}

// Somebody who changes what is written each time, such as a webhook, isn't written against without end.
func TestAStatusThatTheAPIServerDoesNotKeep(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	n := 0
	server.forgets = func(s *corev1.PodStatus) { n++; s.Message = fmt.Sprint("change ", n) }
	run(t, server, func(r *rig) {
		defer r.start()()
		patch := patchOf(corev1.PodRunning, running("app", "one"))
		patch.Status.QOSClass = corev1.PodQOSBurstable
		r.must(r.pods.Set(uid, p))
		server.limit = 1000
		r.must(r.patches.Set(uid, patch))
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(server.calls()); n < 100 || n > 400 {
			t.Errorf("%d requests in an hour", n)
		}
		// What changes meanwhile is written soon.
		r.must(r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "two"))))
		time.Sleep(retryMax)
		synctest.Wait()
		if got := server.pod("default/web").Status.ContainerStatuses[0].ContainerID; got != "containerd://two" {
			t.Errorf("the container is still %s", got)
		}
	})
}

// The API server answers with a conflict too where somebody else writes the pod at the same time.
func TestAConflictIsNotAnotherPod(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		server.refuse = apierrors.NewConflict(corev1.Resource("pods"), "web", fmt.Errorf("the object has been modified"))
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		server.mu.Lock()
		server.refuse = nil
		server.mu.Unlock()
		time.Sleep(retryMax)
		synctest.Wait()
		if got := server.pod("default/web").Status.Phase; got != corev1.PodRunning {
			t.Errorf("phase %q", got)
		}
	})
}

// An answer may arrive after the watch has told of a later state: somebody else has written in between.
func TestALateAnswerDoesNotHideWhatTheWatchHasTold(t *testing.T) {
	p := apiPod(func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	})
	written := p.Pod.DeepCopy()
	written.Status.StartTime = &metav1.Time{Time: t0}
	for name, begins := range map[string]corev1.PodStatus{"a patch": {}, "a reading": written.Status} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.live = true
			w.setPod(uid, p)
			w.setPatch(uid, patchOf(corev1.PodRunning, running("app", "one")), t0)
			w.setObject(uid, objectOf(&corev1.Pod{ObjectMeta: p.Pod.ObjectMeta, Status: begins}, "10"))
			asked := mustDecide(t, w)

			later := written.DeepCopy()
			later.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue}}
			w.setObject(uid, objectOf(later, "12"))
			answered := written.DeepCopy()
			answered.ResourceVersion = "11"
			if err := w.settle(answer{action: asked, pod: answered}); err != nil {
				t.Fatal(err)
			}
			server := newServer(later)
			if patched, err := server.PatchPodStatus(t.Context(), "default", "web", mustDecide(t, w).patch); err != nil {
				t.Error(err)
			} else if got := statusOf(patched.Status, corev1.PodReady); got != corev1.ConditionTrue {
				t.Errorf("Ready %s though the gate is open", got)
			}
		})
	}
}

func mustDecide(t *testing.T, w *world) action {
	t.Helper()
	a, err := w.decide(uid, t1)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A webhook of one namespace that is down is no outage: the pod that it fails is put off, whatever becomes of the others.
func TestAPodThatTheAPIServerFailsOnIsPutOff(t *testing.T) {
	p, other := apiPod(), apiPod(func(p *corev1.Pod) { p.Name, p.UID = "other", "other" })
	server := newServer(p.Pod, other.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		server.refuse = apierrors.NewInternalError(fmt.Errorf("failed calling webhook"))
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))), r.pods.Set("other", other))
		for i := range 20 {
			patch := patchOf(corev1.PodRunning, running("app", fmt.Sprint(i)))
			patch.Ref = topic.RefOf(other.Pod)
			r.must(r.patches.Set("other", patch))
			time.Sleep(50 * time.Millisecond)
		}
		calls := server.calls()
		failing := slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return !strings.HasSuffix(c, "/web") })
		if len(failing) > 10 || len(calls)-len(failing) != 20 {
			t.Errorf("%d requests for the pod that fails in a second, %d for the other", len(failing), len(calls)-len(failing))
		}
	})
}
