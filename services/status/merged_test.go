package status

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// said is the pod's merged status as the bus has it.
func (r *rig) said() (topic.Merged, bool) {
	r.t.Helper()
	data, ok := r.bus.Retained()["pod.status."+uid]
	var m topic.Merged
	if ok {
		if err := json.Unmarshal(data, &m); err != nil {
			r.t.Fatal(err)
		}
	}
	return m, ok
}

// mustSay is the merged status that the bus must have.
func (r *rig) mustSay() topic.Merged {
	r.t.Helper()
	m, ok := r.said()
	if !ok {
		r.t.Fatal("the pod has no merged status on the bus")
	}
	return m
}

// listen counts the messages of pod.status from now on; the returned function tells how many there were since it was
// last called.
func (r *rig) listen() (messages func() int, end func()) {
	conn := r.bus.Conn("api")
	ctx, cancel := context.WithCancel(r.t.Context())
	events := conn.Transport().WatchEvents(ctx, []string{bus.Filter(topic.MergedStatus)}, bus.From{})
	count, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		n := 0
		for {
			select {
			case d, ok := <-events:
				if !ok {
					return
				}
				if !d.Synced {
					n++
				}
			case count <- n:
				n = 0
			}
		}
	}()
	synctest.Wait()
	return func() int { synctest.Wait(); return <-count }, func() { cancel(); <-done; conn.Close() }
}

// both runs the test with an API server and without one.
func both(t *testing.T, body func(t *testing.T, server *server, p topic.Pod, patch topic.PodStatus)) {
	t.Run("with an API server", func(t *testing.T) {
		p := apiPod(withProbes)
		body(t, newServer(p.Pod), p, patchOf(corev1.PodRunning, running("app", "one")))
	})
	t.Run("standalone", func(t *testing.T) {
		p, patch := staticPod()
		withProbes(p.Pod)
		body(t, nil, p, patch)
	})
}

func (r *rig) verdicts(success bool) {
	r.t.Helper()
	r.must(r.probes.Set(bus.Key(uid, "app", topic.ProbeStartup), topic.Probe{ContainerID: "one", Success: true}))
	r.must(r.probes.Set(bus.Key(uid, "app", topic.ProbeReadiness), topic.Probe{ContainerID: "one", Success: success}))
}

func TestTheMergedStatusIsOnTheBusOnceForEachChange(t *testing.T) {
	both(t, func(t *testing.T, server *server, p topic.Pod, patch topic.PodStatus) {
		run(t, server, func(r *rig) {
			messages, end := r.listen()
			defer end()
			defer r.start()()
			wants := func(when string, n int, ready corev1.ConditionStatus) {
				t.Helper()
				if got := messages(); got != n {
					t.Errorf("%s: %d messages, want %d", when, got, n)
				}
				if s := r.mustSay().Status; statusOf(s, corev1.PodReady) != ready ||
					s.ContainerStatuses[0].Ready != (ready == corev1.ConditionTrue) {
					t.Errorf("%s: Ready %s, containers %+v", when, statusOf(s, corev1.PodReady), s.ContainerStatuses)
				}
			}
			r.must(r.pods.Set(uid, p))
			if _, ok := r.said(); ok {
				t.Error("a pod without a computed status has a merged one")
			}
			r.must(r.patches.Set(uid, patch))
			wants("before any verdict", 1, corev1.ConditionFalse)
			r.verdicts(true)
			wants("after the verdicts", 2, corev1.ConditionTrue) // started, ready
			p.FirstSeen = t1
			r.must(r.pods.Set(uid, p))
			r.verdicts(true)
			time.Sleep(2 * resendEvery)
			wants("with nothing new", 0, corev1.ConditionTrue)
			r.verdicts(false)
			wants("after a failure", 1, corev1.ConditionFalse)
			if server != nil && !equality.Semantic.DeepEqual(r.mustSay().Status, server.pod("default/web").Status) {
				t.Errorf("the bus has %+v, the API server %+v", r.mustSay().Status, server.pod("default/web").Status)
			}
			r.must(r.patches.Delete(uid), r.pods.Delete(uid))
			if _, ok := r.said(); ok || messages() != 1 {
				t.Error("the merged status is still there though the pod is gone")
			}
		})
	})
}

// Readiness, and since when it holds, outlive the daemon without any help of probes; what went meanwhile is taken back.
func TestARestartGoesOnFromWhatItHasSaid(t *testing.T) {
	both(t, func(t *testing.T, server *server, p topic.Pod, patch topic.PodStatus) {
		run(t, server, func(r *rig) {
			stop := r.start()
			r.must(r.pods.Set(uid, p), r.patches.Set(uid, patch))
			r.verdicts(true)
			before := r.mustSay()
			stop()
			r.must(
				r.probes.Delete(bus.Key(uid, "app", topic.ProbeStartup)),
				r.probes.Delete(bus.Key(uid, "app", topic.ProbeReadiness)),
			)
			time.Sleep(time.Hour)
			if server != nil {
				server.setDown(true) // its copy can't be had either
			}
			messages, end := r.listen()
			defer end()
			stop = r.start()
			time.Sleep(time.Minute)
			if got := r.mustSay(); !equality.Semantic.DeepEqual(got.Status, before.Status) ||
				statusOf(got.Status, corev1.PodReady) != corev1.ConditionTrue {
				t.Errorf("after a restart %+v, before %+v", got.Status, before.Status)
			}
			if got := messages(); got != 1 {
				t.Errorf("%d messages, want 1: the bus may lose what only an earlier process has said", got)
			}
			stop()
			r.must(r.patches.Delete(uid), r.pods.Delete(uid), r.pods.objects.Delete(uid))
			stop = r.start()
			defer stop()
			if _, ok := r.said(); ok {
				t.Error("a pod that went while the daemon was away has a merged status")
			}
		})
	})
}

// A bus that has lost everything gets it again, also what hasn't changed since an earlier process said it.
func TestABusThatHasLostItsStateGetsTheMergedStatusAgain(t *testing.T) {
	both(t, func(t *testing.T, server *server, p topic.Pod, patch topic.PodStatus) {
		run(t, server, func(r *rig) {
			r.start()()
			stop := r.start()
			r.must(r.pods.Set(uid, p), r.patches.Set(uid, patch))
			r.verdicts(true)
			stop()
			defer r.start()()
			before := r.mustSay()
			r.bus.Disconnect()
			r.bus.LoseState()
			time.Sleep(time.Minute)
			r.bus.Reconnect()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := r.mustSay(); !equality.Semantic.DeepEqual(got.Status, before.Status) {
				t.Errorf("the bus has %+v, before it had %+v", got.Status, before.Status)
			}
		})
	})
}

// The node's readers wait for no API server, and the vain requests make no news.
func TestTheMergedStatusIsOnTheBusThoughTheAPIServerIsAway(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		defer r.start()()
		messages, end := r.listen()
		defer end()
		server.setDown(true)
		r.must(r.pods.Set(uid, p))
		synctest.Wait() // pod.object has the resource version; it must not come after the status was said
		r.must(r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		first := r.mustSay()
		if statusOf(first.Status, corev1.PodReady) != corev1.ConditionTrue || first.ResourceVersion != "10" {
			t.Errorf("said %+v", first)
		}
		time.Sleep(time.Hour)
		if got := messages(); got != 1 {
			t.Errorf("%d messages in an hour in which nothing happened", got)
		}
		server.setDown(false)
		time.Sleep(retryMax)
		synctest.Wait()
		if got := server.pod("default/web").Status; !equality.Semantic.DeepEqual(got, first.Status) || messages() != 0 {
			t.Errorf("the API server has %+v, the bus said %+v", got, first.Status)
		}
	})
}

// A static pod's merged status is found under the pod's own UID, before there is a mirror pod and after.
func TestAStaticPodIsSaidUnderItsOwnUID(t *testing.T) {
	p, patch := staticPod()
	server := newServer()
	run(t, server, func(r *rig) {
		defer r.start()()
		messages, end := r.listen()
		defer end()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patch))
		first := r.mustSay()
		time.Sleep(time.Hour)
		r.wants(p, patch)
		if got := server.pod("default/web"); got == nil || !equality.Semantic.DeepEqual(got.Status, first.Status) {
			t.Errorf("the mirror pod is %+v, the bus said %+v", got, first.Status)
		}
		if got := messages(); got != 1 || first.UID != uid || first.ResourceVersion != "" ||
			statusOf(first.Status, corev1.PodReady) != corev1.ConditionTrue {
			t.Errorf("%d messages, %+v", got, first)
		}
	})
}

// A sidecar that isn't ready keeps its pod from being so.
func TestAnUnreadySidecarIsSaid(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	p := apiPod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always, ReadinessProbe: &corev1.Probe{}}}
	})
	run(t, newServer(p.Pod), func(r *rig) {
		defer r.start()()
		patch := patchOf(corev1.PodRunning, running("app", "one"))
		patch.Status.InitContainerStatuses = []corev1.ContainerStatus{running("side", "two")}
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patch))
		if s := r.mustSay().Status; statusOf(s, corev1.ContainersReady) != corev1.ConditionFalse ||
			statusOf(s, corev1.PodReady) != corev1.ConditionFalse {
			t.Errorf("conditions %+v though the sidecar has no verdict", s.Conditions)
		}
	})
}

// On a bus of an earlier release, which doesn't know the topic, the API server gets the statuses nevertheless.
func TestABusThatKnowsNoMergedStatus(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		earlier := Contract
		earlier.Writes, earlier.Reads = without(Contract.Writes), without(Contract.Reads)
		r.bus.Restrict(
			bus.Contract{Daemon: "podsync", Writes: []bus.Topic{
				topic.PodUpdate, topic.PodObject, topic.StatusPatch, topic.PodMirror, topic.PodSources,
			}},
			bus.Contract{Daemon: "probe", Writes: []bus.Topic{topic.ProbeResult}},
			bus.Contract{Daemon: "lease", Writes: []bus.Topic{topic.NodeObject}}, earlier,
		)
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		time.Sleep(recallPatience)
		synctest.Wait()
		if got := statusOf(server.pod("default/web").Status, corev1.PodReady); got != corev1.ConditionTrue {
			t.Errorf("Ready %s at the API server", got)
		}
		if _, ok := r.said(); ok {
			t.Error("the bus took what it doesn't know: this test shows nothing")
		}
	})
}

func without(topics []bus.Topic) []bus.Topic {
	return slices.DeleteFunc(slices.Clone(topics), func(t bus.Topic) bool { return t.Name() == topic.MergedStatus.Name() })
}
