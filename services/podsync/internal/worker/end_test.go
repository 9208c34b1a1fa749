package worker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/podstatus"
)

func runs() topic.PodObservation {
	return topic.PodObservation{
		At:         time.Now(),
		Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
		Containers: []topic.Container{{ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerRunning}},
	}
}

func deletedWithin(seconds int64) *corev1.Pod {
	pod := testPod()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, &seconds
	return pod
}

func TestAShorterGracePeriodCountsFromNow(t *testing.T) {
	for _, c := range []struct{ after, grace, end time.Duration }{
		{10 * time.Second, 5 * time.Second, 15 * time.Second},
		{28 * time.Second, 5 * time.Second, 30 * time.Second}, // it never grows
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &fakeExecutor{slow: map[plan.Kind]time.Duration{plan.StopContainer: time.Hour}}
			w, r := launch(t, Config{Pod: testPod()}, runs(), h)
			synctest.Wait()
			begin := time.Now()
			w.Update(deletedWithin(30), nil)
			time.Sleep(c.after)
			w.Update(deletedWithin(int64(c.grace/time.Second)), nil)
			synctest.Wait()
			if p, _ := r.last(); p.Deadline.Sub(begin) != c.end {
				t.Errorf("deleted again after %s within %s: it ends after %s, want %s", c.after, c.grace,
					p.Deadline.Sub(begin), c.end)
			}
		})
	}
}

// What is finished is deleted at the API server, and its resources are given to the next pod.
func TestAPodIsFinishedWhenItsVolumesAreUnmountedAndItsCgroupIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const release = "release node resources "
		h := &fakeExecutor{fail: map[plan.Kind]error{plan.ReleaseNode: errors.New("the cgroup is busy")}}
		w, r := launch(t, Config{Pod: testPod()}, runs(), h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		w.Update(deletedWithin(30), nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if p, s := r.last(); p.Lifecycle != topic.Terminated || s.Finished || h.count(release) != 0 {
			t.Fatalf("got lifecycle %s, finished %v, actions %v; want it to wait for its volumes", p.Lifecycle,
				s.Finished, h.actions)
		}
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
		time.Sleep(time.Minute)
		synctest.Wait()
		if p, s := r.last(); p.Released || s.Finished || h.count(release) < 2 {
			t.Fatalf("got released %v, finished %v, actions %v; want it to try again to remove its cgroup", p.Released,
				s.Finished, h.actions)
		}
		h.mu.Lock()
		h.fail = nil
		h.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if p, s := r.last(); !p.Released || !s.Finished {
			t.Errorf("got released %v, finished %v once its cgroup is gone", p.Released, s.Finished)
		}
	})
}

// The pod garbage collector, for one, declares pods of a node ended that was taken out of service.
func TestAPodThatTheAPIServerDeclaresEndedIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{}
		w, r := launch(t, Config{Pod: testPod()}, runs(), h)
		settle()
		failed := testPod()
		failed.Status.Phase, failed.Status.Reason = corev1.PodFailed, "Terminated"
		w.Update(failed, nil)
		settle()
		if p, s := r.last(); p.Lifecycle != topic.Terminated || s.Status.Phase != corev1.PodFailed ||
			s.Status.Reason != "Terminated" {
			t.Errorf("got lifecycle %s, %s %s; want terminated, Failed Terminated", p.Lifecycle, s.Status.Phase, s.Status.Reason)
		}
	})
}

func TestAnEvictionGoesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{slow: map[plan.Kind]time.Duration{plan.StopContainer: 10 * time.Second}}
		w, r := launch(t, Config{Pod: testPod()}, runs(), h)
		settle()
		w.Evict(Eviction{
			Reason: "Evicted", Message: "the node was low on memory",
			Disruption: corev1.PodReasonTerminationByKubelet,
		})
		settle()
		before, status := r.last()
		if status.Status.Phase != corev1.PodRunning {
			t.Fatalf("got %s while it is being stopped, want Running", status.Status.Phase)
		}

		h = &fakeExecutor{obs: runs()}
		_, r = launch(t, Config{Pod: testPod(), Restored: &before, Previous: status.Status}, runs(), h)
		settle()
		_, status = r.last()
		if s := status.Status; s.Phase != corev1.PodFailed || s.Reason != "Evicted" ||
			s.Message != "the node was low on memory" {
			t.Errorf("got %s %s %q, want it Failed and Evicted", s.Phase, s.Reason, s.Message)
		}
		disrupted := false
		for _, c := range status.Status.Conditions {
			disrupted = disrupted || c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonTerminationByKubelet
		}
		if !disrupted {
			t.Errorf("got conditions %v, want DisruptionTarget among them", status.Status.Conditions)
		}
	})
}

// A pod that succeeds while it is chosen for an eviction has succeeded.
func TestAnEvictionOfWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := testPod()
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		w, r := launch(t, Config{Pod: pod}, runs(), &fakeExecutor{})
		settle()
		done := runs()
		done.Containers[0].State, done.Containers[0].FinishedAt = topic.ContainerExited, time.Now()
		w.Observe(done)
		settle()
		if !w.Over() {
			t.Error("its worker doesn't know that it has ended")
		}
		w.Evict(Eviction{Reason: "Evicted", Message: "the node was low on memory"})
		settle()
		if _, s := r.last(); s.Status.Phase != corev1.PodSucceeded || s.Status.Reason != "" {
			t.Errorf("the pod is %s, reason %q; want Succeeded", s.Status.Phase, s.Status.Reason)
		}
	})
}

// What was made present before the spec named another image must not be started in its place.
func TestAnImageThatChangesBeforeTheStart(t *testing.T) {
	for name, pull := range map[string]time.Duration{"after its pull": 0, "during its pull": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &fakeExecutor{slow: map[plan.Kind]time.Duration{plan.EnsureImage: pull}}
				w, _ := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
				settle()
				other := testPod()
				other.Generation, other.Spec.Containers[0].Image = 2, "b"
				w.Update(other, nil)
				w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
				settle()
				if n := h.count("ensure image app"); n != 2 {
					t.Errorf("images were ensured %d times, want once for each", n)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if n := h.count("start container app"); n != 1 {
					t.Errorf("the container was started %d times, want once", n)
				}
			})
		})
	}
}

// Hooks of sidecars run during the stop of the main containers and once; a sidecar whose hook is over is stopped
// without.
func TestHooksOfSidecarsDoNotWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		always := corev1.ContainerRestartPolicyAlways
		pod := func(p *corev1.Pod) *corev1.Pod {
			p.Spec.InitContainers = []corev1.Container{{
				Name: "side", Image: "s", RestartPolicy: &always,
				Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{}}},
			}}
			return p
		}
		obs := runs()
		obs.Containers = append(obs.Containers, topic.Container{
			ID: "y", Name: "side", SandboxID: "s",
			State: topic.ContainerRunning,
		})
		h := &fakeExecutor{obs: obs, slow: map[plan.Kind]time.Duration{
			plan.RunPreStop:    10 * time.Second,
			plan.StopContainer: 5 * time.Second,
		}}
		w, r := launch(t, Config{Pod: pod(testPod())}, obs, h)
		settle()
		begin := time.Now()
		w.Update(pod(deletedWithin(30)), nil)
		settle()
		if h.count("stop container x") != 1 || h.count("run preStop hook y") != 1 {
			t.Fatalf("got actions %v, want the stop and the hook at once", h.actions)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if h.count("stop container y") != 0 {
			t.Error("the sidecar was stopped during its hook")
		}
		time.Sleep(6 * time.Second)
		settle()
		if p, _ := r.last(); p.Lifecycle != topic.Terminated || h.count("run preStop hook y") != 1 ||
			h.count("stop container y") != 1 {
			t.Errorf("after %s the pod is %s, actions %v", time.Since(begin), p.Lifecycle, h.actions)
		}
	})
}

// The user's word counts for a container too that is being stopped for another reason.
func TestADeletionShortensAStopThatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{slow: map[plan.Kind]time.Duration{plan.StopContainer: 20 * time.Second}}
		w, r := launch(t, Config{Pod: testPod()}, runs(), h)
		w.Probe(topic.ProbeKey{Container: "app", Kind: topic.ProbeLiveness}, topic.Probe{ContainerID: "x"})
		settle()
		if h.count("stop container x") != 1 {
			t.Fatalf("actions %v, want the unhealthy container to be stopped", h.actions)
		}
		h.mu.Lock()
		h.slow = nil
		h.mu.Unlock()
		w.Update(deletedWithin(1), nil)
		settle()
		if p, _ := r.last(); h.count("stop container x") != 2 || p.Lifecycle != topic.Terminated {
			t.Errorf("the pod is %s after actions %v, want its container stopped again within the second",
				p.Lifecycle, h.actions)
		}
	})
}

// A start that was broken off may have had its effect nevertheless. While the runtime can't be read, nobody knows.
func TestAPodHasNotEndedBeforeItsLastActionWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := errors.New("the runtime gave no answer")
		h := &fakeExecutor{
			slow:   map[plan.Kind]time.Duration{plan.StartContainer: time.Hour, plan.ReadPod: time.Minute},
			unread: map[plan.Kind]error{plan.StartContainer: hangs, plan.StopSandbox: hangs},
		}
		w, r := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		w.Update(deletedWithin(30), nil)
		settle()
		if p, _ := r.last(); p.Lifecycle != topic.Terminating || h.count("read pod ") != 1 {
			t.Errorf("the pod is %s after actions %v, want it read before anything is said of its end", p.Lifecycle, h.actions)
		}
		h.mu.Lock()
		delete(h.unread, plan.StopSandbox)
		h.mu.Unlock()
		time.Sleep(3 * time.Minute) // its sandbox must be stopped, too
		settle()
		if p, _ := r.last(); p.Lifecycle != topic.Terminated || h.count("stop container app-1") != 1 {
			t.Errorf("the pod is %s after actions %v, want the container stopped that came up late", p.Lifecycle, h.actions)
		}
	})
}

// A deadline from before the clock was set back isn't hours away.
func TestARestoredDeadlineIsNoFartherThanTheGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		grace, deadline := int64(30), time.Now().Add(3*time.Hour)
		before := topic.Pod{Pod: testPod(), Lifecycle: topic.Terminating, GracePeriodSeconds: &grace, Deadline: &deadline}
		h := &fakeExecutor{slow: map[plan.Kind]time.Duration{plan.StopContainer: time.Hour}}
		_, r := launch(t, Config{Pod: deletedWithin(30), Restored: &before}, runs(), h)
		settle()
		if p, _ := r.last(); time.Until(*p.Deadline) > 30*time.Second {
			t.Errorf("the pod has %s to end, want at most its grace period", time.Until(*p.Deadline))
		}
	})
}

// A deleted pod that ends at once is written to the API server once: with the status after which it goes.
func TestAPodThatEndsAtOnceIsStatedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		unmount time.Duration
		want    int
	}{"at once": {200 * time.Millisecond, 1}, "its volume takes long": {time.Minute, 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, r := launch(t, Config{Pod: testPod()}, runs(), &fakeExecutor{obs: runs()})
				time.Sleep(time.Minute)
				synctest.Wait()
				before := len(r.statuses)
				deleted := deletedWithin(30)
				deleted.Generation = 2
				w.Update(deleted, nil)
				time.Sleep(c.unmount)
				w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
				settle()
				if _, s := r.last(); !s.Finished || s.Status.Phase != corev1.PodSucceeded || len(r.statuses)-before != c.want {
					t.Errorf("its end was stated %d times, the last time as %s (finished: %v); want %d", len(r.statuses)-before,
						s.Status.Phase, s.Finished, c.want)
				}
			})
		})
	}
}

// A container that could not be started and isn't started again has ended, whatever its last failure was.
func TestAContainerThatCouldNotStartHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := testPod()
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other", Image: "a"})
		other := runs()
		other.Containers[0].ID, other.Containers[0].Name = "o", "other"
		h := &fakeExecutor{obs: other, fail: map[plan.Kind]error{plan.StartContainer: errors.New("no such command")}}
		w, r := launch(t, Config{Pod: pod}, other, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		of := func() corev1.ContainerState {
			_, s := r.last()
			return s.Status.ContainerStatuses[0].State
		}
		if s := of(); s.Waiting == nil {
			t.Fatalf("after its failure it is %+v", s)
		}
		both := runs()
		both.Containers[0].State, both.Containers[0].ExitCode = topic.ContainerExited, 128
		both.Containers[0].FinishedAt = time.Now()
		both.Containers = append(both.Containers, other.Containers[0])
		h.mu.Lock()
		h.obs = both
		h.mu.Unlock()
		w.Observe(both)
		settle()
		if s := of(); s.Terminated == nil || s.Terminated.ExitCode != 128 {
			t.Errorf("when it has ended it is %+v", s)
		}
	})
}

// A sandbox may have the pod's devices and volumes: a network namespace, or a virtual machine. Nobody takes them back,
// and no other pod gets them, before it is stopped. So it stays over a restart.
func TestAPodHasNotEndedBeforeItsSandboxIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{slow: map[plan.Kind]time.Duration{plan.StopSandbox: time.Minute}, obs: runs()}
		done := testPod()
		done.Spec.RestartPolicy = corev1.RestartPolicyNever
		w, r := launch(t, Config{Pod: done}, runs(), h)
		settle()
		exited := runs()
		exited.At = time.Now().Add(time.Second)
		exited.Containers[0].State = topic.ContainerExited
		h.obs = exited
		w.Observe(exited)
		time.Sleep(30 * time.Second)
		settle()
		if p, s := r.last(); p.Lifecycle != topic.Terminating || podstatus.Terminal(s.Status.Phase) {
			t.Errorf("the pod is %s and %s while its sandbox is being stopped", p.Lifecycle, s.Status.Phase)
		}
		w.Evict(Eviction{Reason: "Evicted"})
		time.Sleep(time.Minute)
		settle()
		p, s := r.last()
		if p.Lifecycle != topic.Terminated || s.Status.Phase != corev1.PodSucceeded {
			t.Errorf("the pod is %s and %s, want it terminated and Succeeded", p.Lifecycle, s.Status.Phase)
		}

		_, r = launch(t, Config{Pod: done, Restored: &p, Previous: s.Status}, exited, h)
		settle()
		if p, _ := r.last(); p.Lifecycle != topic.Terminated {
			t.Errorf("after a restart it is %s again", p.Lifecycle)
		}
	})
}
