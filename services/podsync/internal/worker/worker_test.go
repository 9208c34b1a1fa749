package worker

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

func TestAPodStartsAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{}
		w, r := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		settle()
		if h.count("start container app") != 0 {
			t.Fatal("the container was started before its volumes were mounted")
		}
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		if _, s := r.last(); s.Status.Phase != corev1.PodRunning || s.Status.PodIP != "10.0.0.2" {
			t.Fatalf("got phase %s and address %s, want Running and 10.0.0.2", s.Status.Phase, s.Status.PodIP)
		}

		deleted := testPod()
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w.Update(deleted, nil)
		settle()
		p, s := r.last()
		if p.Lifecycle != topic.Terminated || p.Released || s.Finished {
			t.Fatalf("got lifecycle %s, released %v, finished %v; want terminated and neither before the volumes are unmounted",
				p.Lifecycle, p.Released, s.Finished)
		}
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
		settle()
		if p, s := r.last(); !p.Released || !s.Finished || h.count("remove sandboxes ") != 0 {
			t.Fatal("the pod must be finished, and its sandbox kept until the API object is gone")
		}
		w.Remove()
		settle()
		if h.count("remove sandboxes ") != 1 || !w.Gone() {
			t.Error("the sandbox must be removed once the API object is gone")
		}
		for _, key := range []string{"create sandbox ", "start container app", "stop container app-1", "stop sandbox s"} {
			if n := h.count(key); n != 1 {
				t.Errorf("%q was done %d times, want once", key, n)
			}
		}
	})
}

// Who probes containers waits for the ends of their postStart hooks.
func TestAPostStartHookThatRunsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := without()
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
			Sleep: &corev1.SleepAction{Seconds: 60},
		}}
		h := &fakeExecutor{slow: map[plan.Kind]time.Duration{plan.StartContainer: time.Minute}}
		_, r := launch(t, Config{Pod: pod}, topic.PodObservation{}, h)
		settle()
		if p, _ := r.last(); !slices.Equal(p.PostStart, []string{"app"}) {
			t.Errorf("postStart hooks of %q are said to run, want that of app", p.PostStart)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if p, _ := r.last(); len(p.PostStart) != 0 {
			t.Errorf("postStart hooks of %q are said to run after their end", p.PostStart)
		}
	})
}

func TestAStaleReportStartsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{}
		w, _ := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		before := time.Now()
		settle()
		w.Observe(topic.PodObservation{At: before})
		settle()
		if n := h.count("start container app"); n != 1 {
			t.Errorf("the container was started %d times, want once", n)
		}
		if n := h.count("create sandbox "); n != 1 {
			t.Errorf("the sandbox was created %d times, want once", n)
		}
	})
}

// A runtime that goes away while it is read leaves details out; they must not look like a change.
func TestAnIncompleteReportChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{}
		w, r := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		w.Observe(topic.PodObservation{
			At:         time.Now(),
			Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true}},
			Containers: []topic.Container{{ID: "app-1", Name: "app", SandboxID: "s", State: topic.ContainerUnknown}},
			Errors:     []string{"sandbox s: can't be reached", "container app: can't be reached"},
		})
		settle()
		if _, s := r.last(); s.Status.Phase != corev1.PodRunning || s.Status.ContainerStatuses[0].State.Running == nil ||
			s.Status.PodIP == "" {
			t.Errorf("got status %v, want the one before", s.Status)
		}
		if len(h.actions) != 3 {
			t.Errorf("got actions %v, want the three of the start", h.actions)
		}
	})
}

func TestDeletionEndsAPullAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{slow: map[plan.Kind]time.Duration{plan.EnsureImage: time.Hour}}
		w, r := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		settle()
		deleted := testPod()
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w.Update(deleted, nil)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
		settle()
		if _, s := r.last(); !s.Finished {
			t.Error("the pod must finish although its image was being pulled")
		}
	})
}

func TestARunningPodIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{}
		obs := topic.PodObservation{
			At:         time.Now(),
			Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
			Containers: []topic.Container{{ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerRunning}},
		}
		w, _ := launch(t, Config{Pod: testPod()}, obs, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		if len(h.actions) != 0 {
			t.Errorf("nothing is to be done for a pod that runs, but %v was", h.actions)
		}
	})
}

func TestAFailedStopIsRetriedWithoutASpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{fail: map[plan.Kind]error{plan.StopContainer: errors.New("the runtime is late")}}
		obs := topic.PodObservation{
			At:         time.Now(),
			Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
			Containers: []topic.Container{{ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerRunning}},
		}
		h.obs = obs
		w, r := launch(t, Config{Pod: testPod()}, obs, h)
		w.Remove()
		settle()
		if r.has("FailedKillPod") {
			t.Error("one failure is no news")
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := h.count("stop container x"); n < 3 || n > 8 {
			t.Errorf("tried %d times in 20 s, want a few with growing pauses", n)
		}
		if !r.has("FailedKillPod") {
			t.Error("there is no Event about the stop that keeps failing")
		}
	})
}

func TestTheDeadlineEndsThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{}
		pod := testPod()
		deadline := int64(60)
		pod.Spec.ActiveDeadlineSeconds = &deadline
		w, r := launch(t, Config{Pod: pod}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if _, s := r.last(); s.Status.Phase != corev1.PodRunning {
			t.Fatalf("got %s before the deadline, want Running", s.Status.Phase)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, s := r.last(); s.Status.Phase != corev1.PodFailed || s.Status.Reason != "DeadlineExceeded" {
			t.Errorf("got %s %s, want Failed DeadlineExceeded", s.Status.Phase, s.Status.Reason)
		}
	})
}

func TestATerminationGoesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{slow: map[plan.Kind]time.Duration{plan.StopContainer: time.Hour}}
		obs := topic.PodObservation{
			At:         time.Now(),
			Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
			Containers: []topic.Container{{ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerRunning}},
		}
		grace, end := int64(30), time.Now().Add(12*time.Second)
		pod := testPod()
		pod.DeletionTimestamp = &metav1.Time{Time: end}
		_, r := launch(t, Config{Pod: pod, Restored: &topic.Pod{
			Pod: pod, Lifecycle: topic.Terminating,
			GracePeriodSeconds: &grace, Deadline: &end,
		}}, obs, h)
		settle()
		p, _ := r.last()
		if !p.Deadline.Equal(end) {
			t.Errorf("got the deadline %s, want %s: a restart must not give the pod more time", p.Deadline, end)
		}
	})
}

func TestAPodThatIsToStopWaitsForAnEarlierProcesssStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{fail: map[plan.Kind]error{plan.RemoveContainer: errors.New("it is being started")}}
		h.obs = topic.PodObservation{
			At:         time.Now(),
			Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
			Containers: []topic.Container{{ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerCreated}},
		}
		pod := testPod()
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w, r := launch(t, Config{Pod: pod, Settling: func() bool { return true }}, h.obs, h)
		settle()
		if p, _ := r.last(); p.Lifecycle != topic.Terminating || h.count("stop sandbox s") != 0 {
			t.Fatalf("the pod is %s while its container may be starting, actions %v", p.Lifecycle, h.actions)
		}
		h.mu.Lock()
		h.obs.Containers[0].State = topic.ContainerRunning
		obs := h.obs
		h.mu.Unlock()
		obs.Containers = slices.Clone(obs.Containers)
		obs.At = time.Now()
		w.Observe(obs)
		settle()
		if p, _ := r.last(); p.Lifecycle != topic.Terminated || h.count("stop container x") != 1 ||
			h.count("stop sandbox s") != 1 {
			t.Errorf("the pod is %s, actions %v", p.Lifecycle, h.actions)
		}
	})
}

// How often a container was restarted in its life says nothing on how it does now.
func TestTheBackoffAfterARestartOfTheDaemon(t *testing.T) {
	for name, v := range map[string]struct {
		restored *topic.Pod
		wait     time.Duration
	}{
		"taken over":         {nil, 0},
		"from before it was": {&topic.Pod{Pod: testPod()}, 0},
		"known":              {&topic.Pod{Pod: testPod(), BackoffBase: map[string]int{"app": 38}}, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				obs := topic.PodObservation{
					At:        time.Now(),
					Sandboxes: []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
					Containers: []topic.Container{{
						ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerExited, ExitCode: 1, Attempt: 40, RestartCount: 40,
						FinishedAt: time.Now(),
					}},
				}
				h := &fakeExecutor{obs: obs}
				w, r := launch(t, Config{Pod: testPod(), Restored: v.restored}, obs, h)
				w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
				if v.wait > 0 {
					time.Sleep(v.wait - time.Second)
					synctest.Wait()
					if h.count("start container app") != 0 {
						t.Error("started too early")
					}
					time.Sleep(time.Second)
				}
				settle()
				if h.count("start container app") != 1 {
					t.Error("not started")
				}
				if p, _ := r.last(); len(p.BackoffBase) != 1 {
					t.Errorf("the bus is told %v", p.BackoffBase)
				}
			})
		})
	}
}
