package status

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// objectOf is what podsync's watch tells of the server's pod.
func objectOf(p *corev1.Pod, version string) topic.APIPod {
	return topic.APIPod{Ref: topic.RefOf(p), ResourceVersion: version, Status: p.Status}
}

// watched has podsync's watch tell what the server has of the pod.
func (r *rig) watched() {
	r.t.Helper()
	p := r.server.pod("default/web")
	r.must(r.pods.objects.Set(uid, objectOf(p, p.ResourceVersion)))
}

// An API server that was restored from a backup has the pod as it was, at a version that has been before.
func TestARestoredAPIServerGetsTheStatusAgain(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		r.watched()
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

// The node lifecycle controller calls the pods of a silent node unready, mirror pods among them; their node agent takes
// that back.
func TestAMirrorPodThatSomebodyElseCalledUnready(t *testing.T) {
	p, patch := staticPod()
	server := newServer()
	run(t, server, func(r *rig) {
		defer r.start()()
		r.wants(p, patch)
		made := server.pod("default/web")
		tell := func(p *corev1.Pod) {
			r.must(r.mirrors.Set(string(p.UID), topic.MirrorPod{
				Ref: topic.RefOf(p), Hash: "h1",
				ResourceVersion: p.ResourceVersion, Status: p.Status,
			}))
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
		server.set(func() { server.refuse = nil })
		time.Sleep(retryMax)
		synctest.Wait()
		if got := server.pod("default/web").Status.Phase; got != corev1.PodRunning {
			t.Errorf("phase %q", got)
		}
	})
}

// A load balancer that has lost its servers answers so too. Nobody writes the pod afterwards, so the watch has no news.
func TestAPodThatIsNotFoundOnceIsWrittenAgain(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p))
		server.set(func() { server.fails = apierrors.NewNotFound(corev1.Resource("pods"), "web") })
		r.must(r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		server.set(func() { server.fails = nil })
		time.Sleep(retryMax)
		synctest.Wait()
		if got := server.pod("default/web").Status.Phase; got != corev1.PodRunning {
			t.Errorf("phase %q", got)
		}
		// One that is gone is asked for until the watch says so.
		server.set(func() { delete(server.pods, "default/web") })
		r.must(r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "two"))))
		r.must(r.patches.Delete(uid), r.pods.Delete(uid))
		time.Sleep(time.Minute)
		synctest.Wait()
		r.server.calls()
		time.Sleep(time.Hour)
		r.wantCalls()
	})
}

// A pod that was deleted by force is gone at once, while its containers take their time to end. Nobody asks for it.
func TestAPodThatWasDeletedByForceIsNotAskedFor(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.sources.Set("", topic.Sources{Ready: true, Pods: []string{uid}}), r.pods.Set(uid, p),
			r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		server.set(func() { delete(server.pods, "default/web") })
		p.Lifecycle = topic.Terminating
		r.must(r.sources.Set("", topic.Sources{Ready: true}), r.pods.Set(uid, p))
		r.must(r.patches.Set(uid, patchOf(corev1.PodRunning, exited("app", 137))))
		time.Sleep(time.Minute)
		synctest.Wait()
		r.server.calls()
		time.Sleep(time.Hour)
		r.wantCalls()
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
			w := newState()
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

func mustDecide(t *testing.T, w *state) action {
	t.Helper()
	a, err := w.decide(uid, t1)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A webhook of one namespace that is down is no outage: the pod that it fails is put off, whatever becomes of the
// others.
func TestAPodThatTheAPIServerFailsOnIsPutOff(t *testing.T) {
	p, other := apiPod(), apiPod(func(p *corev1.Pod) { p.Name, p.UID = "other", "other" })
	server := newServer(p.Pod, other.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		server.refuse = apierrors.NewInternalError(fmt.Errorf("failed calling webhook"))
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))),
			r.pods.Set("other", other))
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
		if lines := strings.Count(r.log.String(), "uid="+uid); lines < 2 || lines > 3 || r.health != topic.Healthy {
			t.Errorf("%d lines in the log for %d failures, health %s", lines, len(failing), r.health)
		}
	})
}

// An API server whose storage is away fails on every pod: one line and the health say so, and the first success frees
// all who wait.
func TestAnAPIServerThatFailsOnAllIsAnOutage(t *testing.T) {
	var pods []topic.Pod
	server := newServer()
	for i := range 20 {
		p := apiPod(func(p *corev1.Pod) {
			p.Name, p.UID, p.Namespace = fmt.Sprint("web", i), types.UID(fmt.Sprint("uid", i)), fmt.Sprint("team", i%4)
		})
		server.put(p.Pod)
		pods = append(pods, p)
	}
	run(t, server, func(r *rig) {
		defer r.start()()
		server.fails = apierrors.NewInternalError(fmt.Errorf("etcdserver: request timed out"))
		for i, p := range pods {
			patch := patchOf(corev1.PodRunning, running("app", "one"))
			patch.Ref = topic.RefOf(p.Pod)
			r.must(r.pods.Set(string(p.Pod.UID), p), r.patches.Set(string(p.Pod.UID), patch))
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if lines := strings.Count(r.log.String(), "level=WARN"); lines > 3 || r.health != topic.Degraded {
			t.Errorf("health %s, %d warnings:\n%s", r.health, lines, r.log.String())
		}
		server.set(func() { server.fails = nil })
		first := time.Now()
		for len(server.calls()) == 0 {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		for _, p := range pods {
			if server.pod(p.Pod.Namespace+"/"+p.Pod.Name).Status.Phase != corev1.PodRunning {
				t.Errorf("%s still waits %s after the end of the outage", p.Pod.Name, time.Since(first))
			}
		}
		if r.health != topic.Healthy {
			t.Errorf("health %s after the outage", r.health)
		}
	})
}

// Webhooks of two namespaces that are down: the pods of a third are written, and don't have the others tried again each
// time.
func TestTwoNamespacesThatFailDoNotHurryEachOther(t *testing.T) {
	s := New(daemon.Env{Log: slog.New(slog.DiscardHandler), Health: &rig{}, Metrics: prometheus.NewRegistry()}, nil)
	fail := func(uid, namespace string) {
		s.tries[uid] = &try{}
		s.failed(action{key: uid, Ref: topic.Ref{Namespace: namespace}}, s.tries[uid],
			apierrors.NewInternalError(fmt.Errorf("failed calling webhook")))
	}
	fail("a", "one")
	fail("b", "one")
	if s.outage != "" {
		t.Error("one namespace is called an outage")
	}
	fail("c", "two")
	if s.outage == "" {
		t.Error("two namespaces aren't called an outage")
	}
	s.reached(&try{})
	if s.tries["a"].after.IsZero() || s.outage == "" {
		t.Error("a pod of another namespace has the failing ones tried again")
	}
	s.reached(s.tries["c"])
	if !s.tries["a"].after.IsZero() || s.outage != "" {
		t.Error("the success of one that had failed doesn't free the others")
	}
}

func TestFewLinesForManyFailures(t *testing.T) {
	var lines []int
	for n := 1; n <= 100; n++ {
		if worthALine(n) {
			lines = append(lines, n)
		}
	}
	if !slices.Equal(lines, []int{1, 4, 16, 64}) {
		t.Errorf("logged at %v", lines)
	}
}

// An outage that begins with an answer that is broken off is known by what comes next.
func TestOutageSaysThatNothingListens(t *testing.T) {
	r := &rig{}
	s := New(daemon.Env{Log: slog.New(slog.DiscardHandler), Health: r, Metrics: prometheus.NewRegistry()}, nil)
	for _, err := range []error{
		io.ErrUnexpectedEOF, fmt.Errorf("patch status: %w", syscall.ECONNREFUSED), io.ErrUnexpectedEOF,
	} {
		s.failed(action{key: "a"}, &try{}, err)
	}
	if !strings.Contains(s.outage, "connection refused") {
		t.Errorf("the outage is %q", s.outage)
	}
}
