package status

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is the service between a bus in memory and an API server in memory.
type rig struct {
	t      *testing.T
	server *server
	bus    *bustest.Bus

	pods    podWriter
	patches *bus.Writer[topic.PodStatus]
	probes  *bus.Writer[topic.Probe]
	mirrors *bus.Writer[topic.MirrorPod]
	sources *bus.Writer[topic.Sources]
	node    *bus.Writer[corev1.Node]

	// log and health are the service's; to be read after synctest.Wait.
	log    bytes.Buffer
	health topic.HealthState
}

func (r *rig) Set(state topic.HealthState, _ string) { r.health = state }

// podWriter states pods as podsync does: the object of an API pod apart.
type podWriter struct {
	updates *bus.Writer[topic.Pod]
	objects *bus.Writer[topic.APIPod]
}

func (w podWriter) Set(uid string, p topic.Pod) error {
	var err error
	pod := *p.Pod
	if !p.Static() {
		err = w.objects.Set(uid, topic.APIPod{
			Ref: topic.Ref{Namespace: pod.Namespace, Name: pod.Name, UID: uid}, ResourceVersion: pod.ResourceVersion, Status: pod.Status,
		})
	}
	pod.Status = corev1.PodStatus{}
	p.Pod = &pod
	return errors.Join(err, w.updates.Set(uid, p))
}

func (w podWriter) Delete(uid string) error {
	return errors.Join(w.objects.Delete(uid), w.updates.Delete(uid))
}

type nothing struct{}

func (nothing) Record(topic.Event) {}

// run runs a test in a bubble, with the service started by the test's own call of start.
func run(t *testing.T, server *server, body func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := bustest.New()
		podsync, probe, lease := b.Conn("podsync"), b.Conn("probe"), b.Conn("lease")
		defer podsync.Close()
		defer probe.Close()
		defer lease.Close()
		body(&rig{
			t: t, server: server, bus: b,
			pods: podWriter{topic.PodUpdate.Writer(podsync), topic.PodObject.Writer(podsync)}, patches: topic.StatusPatch.Writer(podsync),
			mirrors: topic.PodMirror.Writer(podsync), sources: topic.PodSources.Writer(podsync),
			probes: topic.ProbeResult.Writer(probe), node: topic.NodeObject.Writer(lease),
		})
	})
}

// start starts the service; the returned function stops it.
func (r *rig) start() (stop func()) {
	conn := r.bus.Conn("status")
	env := daemon.Env{
		Config: &config.Config{NodeName: "n1"}, Bus: conn, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Health: r, Events: nothing{}, Metrics: prometheus.NewRegistry(),
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error)
	go func() { done <- New(env, r.server).Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
		conn.Close()
	}
}

func (r *rig) must(errs ...error) {
	r.t.Helper()
	for _, err := range errs {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	synctest.Wait()
}

func (r *rig) wantCalls(want ...string) {
	r.t.Helper()
	if got := r.server.calls(); !slices.Equal(got, want) {
		r.t.Errorf("calls %q, want %q", got, want)
	}
}

func TestANewPodIsWrittenAtOnceAndOnlyWhenItChanges(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		r.wantCalls("patch default/web")
		if s := server.pod("default/web").Status; s.Phase != corev1.PodRunning || statusOf(s, corev1.PodReady) != corev1.ConditionTrue {
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
		object := topic.APIPod{Ref: topic.Ref{Namespace: "default", Name: "web", UID: uid}, ResourceVersion: "50", Status: corev1.PodStatus{Phase: corev1.PodPending}}
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
		s.Status.AllocatedResources, s.Status.Resources = corev1.ResourceList{}, &corev1.ResourceRequirements{Limits: corev1.ResourceList{}}
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

// staticPod is a static pod with its status.
func staticPod() (topic.Pod, topic.PodStatus) {
	p := apiPod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{annotationHash: "h1"}
		p.ResourceVersion = ""
	})
	p.Source = topic.SourceFile
	patch := patchOf(corev1.PodRunning, running("app", "one"))
	patch.Source = topic.SourceFile
	return p, patch
}

func registeredNode() corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}
}

func TestAStaticPodHasAMirrorPod(t *testing.T) {
	p, patch := staticPod()
	server := newServer()
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.sources.Set("", topic.Sources{Ready: true, Pods: []string{uid}}), r.pods.Set(uid, p), r.patches.Set(uid, patch))
		r.wantCalls() // the Node isn't registered yet
		r.must(r.node.Set("", registeredNode()))
		r.wantCalls("create default/web", "patch default/web")
		made := server.pod("default/web")
		owner := made.OwnerReferences[0]
		if made.Annotations[annotationMirror] != "h1" || owner.Kind != "Node" || owner.UID != "node-uid" || made.UID == uid {
			t.Errorf("mirror pod %+v", made.ObjectMeta)
		}
		if statusOf(made.Status, corev1.PodReady) != corev1.ConditionTrue {
			t.Error("the mirror pod has no status")
		}
	})
}

func TestADeletedMirrorPodComesBack(t *testing.T) {
	p, patch := staticPod()
	server := newServer()
	run(t, server, func(r *rig) {
		defer r.start()()
		r.wants(p, patch)
		made := server.pod("default/web")
		ref := topic.Ref{Namespace: "default", Name: "web", UID: string(made.UID)}
		r.must(r.mirrors.Set(ref.UID, topic.MirrorPod{Ref: ref, Hash: "h1", Deleting: true}))
		r.server.calls()
		r.must(r.mirrors.Delete(ref.UID))
		r.wantCalls("create default/web", "patch default/web")
	})
}

func TestAnOutdatedMirrorPodIsReplaced(t *testing.T) {
	p, patch := staticPod()
	old := apiPod(func(p *corev1.Pod) { p.UID = "old-mirror" }).Pod
	server := newServer(old)
	run(t, server, func(r *rig) {
		defer r.start()()
		ref := topic.Ref{Namespace: "default", Name: "web", UID: "old-mirror"}
		r.must(r.node.Set("", registeredNode()), r.mirrors.Set("old-mirror", topic.MirrorPod{Ref: ref, Hash: "h0"}))
		r.wantCalls() // sources aren't ready: it may be wanted
		r.must(r.sources.Set("", topic.Sources{Ready: true, Pods: []string{uid}}), r.pods.Set(uid, p), r.patches.Set(uid, patch))
		r.must(r.mirrors.Delete("old-mirror"))
		if made := server.pod("default/web"); made == nil || made.UID == "old-mirror" || made.Annotations[annotationMirror] != "h1" {
			t.Errorf("mirror pod %+v", made)
		}
	})
}

// wants has the static pod run on a registered node.
func (r *rig) wants(p topic.Pod, patch topic.PodStatus) {
	r.must(r.node.Set("", registeredNode()), r.sources.Set("", topic.Sources{Ready: true, Pods: []string{uid}}), r.pods.Set(uid, p), r.patches.Set(uid, patch))
}

func TestAMirrorPodGoesWithItsManifest(t *testing.T) {
	p, patch := staticPod()
	server := newServer()
	run(t, server, func(r *rig) {
		defer r.start()()
		r.wants(p, patch)
		made := server.pod("default/web")
		ref := topic.Ref{Namespace: "default", Name: "web", UID: string(made.UID)}
		r.must(r.mirrors.Set(ref.UID, topic.MirrorPod{Ref: ref, Hash: "h1"}))
		p.Lifecycle = topic.Terminating
		r.must(r.pods.Set(uid, p), r.sources.Set("", topic.Sources{Ready: true}))
		if server.pod("default/web") == nil {
			t.Error("the mirror pod went before its pod had stopped")
		}
		p.Lifecycle = topic.Terminated
		r.must(r.pods.Set(uid, p))
		if server.pod("default/web") != nil {
			t.Error("the mirror pod is still there")
		}
	})
}
