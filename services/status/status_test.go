package status

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

func TestANewPodIsWrittenAtOnceAndOnlyWhenItChanges(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		r.wantCalls("patch default/web")
		if s := server.pod("default/web").Status; s.Phase != corev1.PodRunning ||
			statusOf(s, corev1.PodReady) != corev1.ConditionTrue {
			t.Errorf("phase %s, Ready %s", s.Phase, statusOf(s, corev1.PodReady))
		}
		p.FirstSeen = t1
		r.must(r.pods.Set(uid, p))
		r.wantCalls()
	})
}

func TestARestartReadsWhatItDoesNotKnowAndWritesNothingTwice(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		stop := r.start()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		stop()
		r.wantCalls("patch default/web")
		before := server.pod("default/web")
		time.Sleep(time.Hour)
		stop = r.start()
		r.wantCalls("get default/web")
		stop()
		if !equalJSON(t, before, server.pod("default/web")) {
			t.Error("the restart changed the pod")
		}
	})
}

func TestProbeVerdictsTurnReady(t *testing.T) {
	p := apiPod(withProbes)
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		if got := statusOf(server.pod("default/web").Status, corev1.PodReady); got != corev1.ConditionFalse {
			t.Errorf("Ready %s before any verdict", got)
		}
		r.must(
			r.probes.Set(bus.Key(uid, "app", topic.ProbeStartup), topic.Probe{ContainerID: "one", Success: true}),
			r.probes.Set(bus.Key(uid, "app", topic.ProbeReadiness), topic.Probe{ContainerID: "one", Success: true}),
		)
		if got := statusOf(server.pod("default/web").Status, corev1.PodReady); got != corev1.ConditionTrue {
			t.Errorf("Ready %s after the verdicts", got)
		}
	})
}

// What somebody else has written into the status is put right; what the watch tells late changes nothing.
func TestAStatusThatSomebodyElseHasChanged(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		r.wantCalls("patch default/web")
		object := topic.APIPod{
			Ref: topic.Ref{Namespace: "default", Name: "web", UID: uid}, ResourceVersion: "50",
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		}
		r.must(r.pods.objects.Set(uid, object))
		r.wantCalls()

		object.ResourceVersion = "9999"
		r.must(r.pods.objects.Set(uid, object))
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantCalls("patch default/web")
		if got := server.pod("default/web").Status.Phase; got != corev1.PodRunning {
			t.Errorf("phase %s after somebody else's write", got)
		}
	})
}

// An API server may drop a field that kubelot writes; it isn't written to over and over.
func TestWhatTheAPIServerDropsIsSentOnce(t *testing.T) {
	sized := func(phase corev1.PodPhase) topic.PodStatus {
		s := patchOf(phase, running("app", "one"))
		s.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		s.Status.Resources = &corev1.ResourceRequirements{Requests: s.Status.AllocatedResources}
		return s
	}
	p := apiPod()
	server := newServer(p.Pod)
	server.forgets = func(s *corev1.PodStatus) { s.Resources, s.AllocatedResources = nil, nil }
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, sized(corev1.PodPending)))
		r.wantCalls("patch default/web", "patch default/web")
		r.must(r.patches.Set(uid, sized(corev1.PodRunning)))
		r.wantCalls("patch default/web")
		if s := server.pod("default/web").Status; s.Phase != corev1.PodRunning || s.Resources != nil {
			t.Errorf("phase %s, resources %v", s.Phase, s.Resources)
		}
		time.Sleep(resendEvery - time.Second)
		synctest.Wait()
		r.wantCalls()
		time.Sleep(resendEvery)
		synctest.Wait()
		r.wantCalls("patch default/web")
		server.set(func() { server.forgets = nil })
		time.Sleep(time.Hour)
		synctest.Wait()
		r.wantCalls("patch default/web")
		if server.pod("default/web").Status.Resources == nil {
			t.Error("an API server that keeps the resources now hasn't got them")
		}
	})
}

// A pod without any resources has an empty form of them, which is no news once it is written.
func TestEmptyResourcesAreWrittenOnce(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		s := patchOf(corev1.PodRunning, running("app", "one"))
		s.Status.AllocatedResources, s.Status.Resources = corev1.ResourceList{},
			&corev1.ResourceRequirements{Limits: corev1.ResourceList{}}
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, s))
		r.wantCalls("patch default/web")
		if server.pod("default/web").Status.Resources == nil {
			t.Error("the status has no resources")
		}
	})
}

func TestAnOutageDelaysOnlyTheLatestState(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		server.setDown(true)
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodPending)))
		time.Sleep(5 * time.Minute)
		r.must(r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		server.setDown(false)
		time.Sleep(retryMax)
		synctest.Wait()
		r.wantCalls("patch default/web")
		if got := server.pod("default/web").Status.Phase; got != corev1.PodRunning {
			t.Errorf("phase %s after the outage", got)
		}
	})
}

func TestAFinishedPodIsRemovedAfterItsLastStatus(t *testing.T) {
	deleted := metav1.NewTime(t0)
	p := apiPod(func(p *corev1.Pod) { p.DeletionTimestamp = &deleted })
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		finished := patchOf(corev1.PodFailed, exited("app", 143))
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		r.wantCalls("patch default/web")
		finished.Finished = true
		r.must(r.patches.Set(uid, finished))
		r.wantCalls("patch default/web", "delete default/web")
		r.must(r.patches.Delete(uid), r.pods.Delete(uid))
		r.wantCalls()
	})
}

// An API server that has just started finds no pod to delete, though it has it.
func TestADeletionThatFindsNoPodIsAskedForAgain(t *testing.T) {
	deleted := metav1.NewTime(t0)
	p := apiPod(func(p *corev1.Pod) { p.DeletionTimestamp = &deleted })
	mirror := apiPod(func(p *corev1.Pod) { p.Name, p.UID = "old-n1", "mirror" }).Pod
	server := newServer(p.Pod, mirror)
	run(t, server, func(r *rig) {
		defer r.start()()
		server.setBlind(true)
		finished := patchOf(corev1.PodFailed, exited("app", 143))
		finished.Finished = true
		ref := topic.Ref{Namespace: "default", Name: "old-n1", UID: "mirror"}
		r.must(
			r.sources.Set("", topic.Sources{Ready: true}), r.mirrors.Set("mirror", topic.MirrorPod{Ref: ref, Hash: "h1"}),
			r.pods.Set(uid, p), r.patches.Set(uid, finished),
		)
		time.Sleep(time.Second)
		if server.pod("default/web") == nil || server.pod("default/old-n1") == nil {
			t.Fatal("a blind server has deleted something")
		}
		server.setBlind(false)
		time.Sleep(retryMax)
		synctest.Wait()
		if server.pod("default/web") != nil || server.pod("default/old-n1") != nil {
			t.Error("a pod is still there")
		}
		r.server.calls()
		// What really is gone is asked for until podsync's watch says so.
		r.must(r.patches.Delete(uid), r.pods.Delete(uid), r.mirrors.Delete("mirror"))
		time.Sleep(time.Hour)
		r.wantCalls()
	})
}

func TestAnotherPodOfTheSameNameIsLeftAlone(t *testing.T) {
	p := apiPod()
	server := newServer(apiPod(func(p *corev1.Pod) { p.UID = "22222222" }).Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		time.Sleep(time.Hour)
		r.wantCalls("patch default/web", "get default/web")
		if got := server.pod("default/web").Status.Phase; got != "" {
			t.Errorf("the other pod's phase became %s", got)
		}
	})
}
