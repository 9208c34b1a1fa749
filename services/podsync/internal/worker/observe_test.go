package worker

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// pleg's reading may begin before the worker's own and yet see more: its exit must not be lost, since it isn't said
// again.
func TestAnOlderReadingThatIsAheadIsLookedInto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{}
		pod := testPod()
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		w, r := launch(t, Config{Pod: pod}, topic.PodObservation{}, h)
		began := time.Now()
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		exited := topic.Container{ID: "app-1", Name: "app", SandboxID: "s", State: topic.ContainerExited, ExitCode: 0}
		h.mu.Lock()
		h.obs.Containers[0] = exited
		h.mu.Unlock()
		w.Observe(topic.PodObservation{
			At:         began,
			Containers: []topic.Container{{ID: "app-1", Name: "app", State: topic.ContainerCreated}},
		})
		settle()
		if n := h.count("read pod "); n != 0 {
			t.Errorf("an older reading that knows less was looked into %d times", n)
		}
		w.Observe(topic.PodObservation{At: began, Containers: []topic.Container{exited}})
		settle()
		if n := h.count("read pod "); n != 1 {
			t.Errorf("the pod was read %d times, want once", n)
		}
		if _, s := r.last(); s.Status.Phase != corev1.PodSucceeded {
			t.Errorf("the pod is %s, want Succeeded", s.Status.Phase)
		}
	})
}

// A clock that is set back must not make the worker deaf.
func TestReadingsAreOrderedByUptime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obs := topic.PodObservation{
			At: time.Now().Add(time.Hour), Uptime: time.Minute,
			Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
			Containers: []topic.Container{{ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerRunning}},
		}
		h := &fakeExecutor{}
		w, r := launch(t, Config{Pod: testPod()}, obs, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		obs.At, obs.Uptime = time.Now(), 2*time.Minute
		obs.Containers = []topic.Container{{
			ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerExited, ExitCode: 1,
			FinishedAt: time.Now().Add(time.Hour),
		}}
		h.obs = topic.PodObservation{Sandboxes: obs.Sandboxes, Containers: obs.Containers}
		w.Observe(obs)
		settle()
		if _, s := r.last(); s.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("got %+v, want the container started again: %v", s.Status.ContainerStatuses[0], h.actions)
		}
	})
}

// What the runtime says it has stopped and still shows running is stopped again after a pause, like any failed stop.
func TestAnActionWithoutEffectIsRetriedWithoutASpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{inert: map[plan.Kind]bool{plan.StopContainer: true}}
		obs := topic.PodObservation{
			At:         time.Now(),
			Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
			Containers: []topic.Container{{ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerRunning}},
		}
		h.obs = obs
		w, r := launch(t, Config{Pod: testPod()}, obs, h)
		w.Remove()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := h.count("stop container x"); n < 3 || n > 8 {
			t.Errorf("tried %d times in 20 s, want a few with growing pauses", n)
		}
		if !r.has("FailedKillPod") {
			t.Error("there is no Event about the stop that has no effect")
		}
	})
}

func TestASandboxWithoutAnAddressIsMadeAgainWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{inert: map[plan.Kind]bool{plan.CreateSandbox: true}}
		launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := h.count("create sandbox "); n < 3 || n > 8 {
			t.Errorf("tried %d times in 20 s, want a few with growing pauses", n)
		}
	})
}

// Why a container can't be started is told without a break, though its image is looked for before each try.
func TestTheReasonOfAFailedStartStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{fail: map[plan.Kind]error{plan.StartContainer: &Failed{
			Reason:  "CreateContainerConfigError",
			Message: `secret "x" not found`,
		}}}
		w, r := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		r.mu.Lock()
		before := len(r.statuses)
		r.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := h.count("start container app"); n < 3 {
			t.Fatalf("tried %d times in a minute", n)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, s := range r.statuses[before:] {
			if waiting := s.Status.ContainerStatuses[0].State.Waiting; waiting == nil ||
				waiting.Reason != "CreateContainerConfigError" {
				t.Errorf("between two tries the state was %+v", s.Status.ContainerStatuses[0].State)
			}
		}
	})
}

// The runtime has nothing of a pod any more, says pleg: the worker looks, and makes it again.
func TestAVanishedPodIsLookedForAndMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{}
		w, _ := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		w.Vanished() // of the pod's life before, say
		settle()
		if n := h.count("create sandbox "); n != 1 {
			t.Errorf("%d sandboxes though the first is there", n)
		}
		h.mu.Lock()
		h.obs.Sandboxes, h.obs.Containers = nil, nil
		h.mu.Unlock()
		w.Vanished()
		settle()
		if n := h.count("create sandbox "); n != 2 {
			t.Errorf("%d sandboxes, want another for the one that vanished", n)
		}
	})
}

func TestNoDoubtKeepsAPodFromEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{fail: map[plan.Kind]error{plan.ReadPod: errors.New("the runtime is away")}}
		w, _ := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		w.Vanished()
		deleted := testPod()
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w.Update(deleted, nil)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
		w.Remove()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !w.Gone() {
			t.Error("the pod isn't gone")
		}
	})
}

// The dispatcher has news for a worker that waits for its last action, which a runtime may keep: it mustn't wait, too.
func TestNobodyWaitsForAWorkerThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{deaf: map[plan.Kind]time.Duration{plan.ReadPod: 20 * time.Second}}
		w, _ := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		w.Vanished()
		deleted := testPod()
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w.Update(deleted, nil)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
		w.Remove()
		settle()
		if n := h.count("remove sandboxes "); n != 1 {
			t.Fatalf("the sandboxes were removed %d times, want once", n)
		}
		began := time.Now()
		w.Wake()
		if took := time.Since(began); took > 0 {
			t.Errorf("the worker could be told nothing for %s", took)
		}
	})
}

// What an action that failed has brought up is not brought up again before it is looked for.
func TestAFailedStartIsLookedForBeforeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{
			slow:   map[plan.Kind]time.Duration{plan.ReadPod: time.Minute},
			unread: map[plan.Kind]error{plan.CreateSandbox: errors.New("the runtime gave no answer")},
		}
		w, _ := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		// A reading that began before the action has ended says nothing of it.
		w.Observe(topic.PodObservation{At: time.Now().Add(-time.Second)})
		time.Sleep(5 * time.Minute)
		settle()
		if n, m := h.count("create sandbox "), h.count("start container app"); n != 1 || m != 1 {
			t.Errorf("%d sandboxes were created and %d containers started, want one of each: %v", n, m, h.actions)
		}
	})
}

// The same for a sandbox that stays ready whatever is done to it.
func TestASandboxThatStaysReadyIsStoppedWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{inert: map[plan.Kind]bool{plan.StopSandbox: true}, obs: runs()}
		w, r := launch(t, Config{Pod: testPod()}, runs(), h)
		w.Remove()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := h.count("stop sandbox s"); n < 3 || n > 8 {
			t.Errorf("tried %d times in 20 s, want a few with growing pauses", n)
		}
		if !r.has("FailedKillPod") {
			t.Error("there is no Event about the stop that has no effect")
		}
	})
}

// A start that has failed waits for the share of those, whatever the pod's place is.
func TestWhoseStartFailsIsTriedAgainInItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{fail: map[plan.Kind]error{plan.CreateSandbox: errors.New("no network")}}
		launch(t, Config{Pod: testPod(), Rank: 7}, topic.PodObservation{}, h)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		var failed []bool
		for i, action := range h.actions {
			if action == "create sandbox " {
				failed = append(failed, h.turns[i].Failed)
			}
		}
		if len(failed) < 3 || failed[0] || !failed[1] || !failed[2] {
			t.Errorf("the turns of its tries say of the try before that it failed: %v; want false, true, true", failed)
		}
	})
}

// A manifest that names its pod's UID changes the pod in place, and has no generation.
func TestAMendedManifestIsTriedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hopeless := &Failed{Reason: "InvalidImageName", RetryAt: time.Now().Add(time.Hour)}
		h := &fakeExecutor{fail: map[plan.Kind]error{plan.EnsureImage: hopeless}}
		w, _ := launchFrom(t, topic.SourceFile, Config{Pod: testPod()}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		h.mu.Lock()
		h.fail = nil
		h.mu.Unlock()
		mended := testPod()
		mended.Spec.Containers[0].Image = "b"
		w.Update(mended, nil)
		settle()
		if h.count("start container app") != 1 {
			t.Errorf("actions %v, want the container started", h.actions)
		}
	})
}

// The end of an init container's run stays told when its container is collected, as that of any other.
func TestTheLastStateOfAnInitContainerIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := testPod()
		pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "s"}}
		run := func(id string, state topic.ContainerState, restarts int) topic.PodObservation {
			return topic.PodObservation{
				At: time.Now(), Sandboxes: []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
				Containers: []topic.Container{{
					ID: id, Name: "setup", SandboxID: "s", State: state, ExitCode: 3,
					RestartCount: restarts, StartedAt: time.Now(), FinishedAt: time.Now(),
				}},
			}
		}
		h := &fakeExecutor{slow: map[plan.Kind]time.Duration{plan.StartContainer: time.Hour}}
		w, r := launch(t, Config{Pod: pod}, run("x1", topic.ContainerRunning, 0), h)
		settle()
		w.Observe(run("x1", topic.ContainerExited, 0))
		settle()
		w.Observe(run("x2", topic.ContainerRunning, 1))
		settle()
		time.Sleep(holdSmallStepsCrowded)
		synctest.Wait()
		_, s := r.last()
		got := s.Status.InitContainerStatuses[0]
		if last := got.LastTerminationState.Terminated; last == nil || last.ExitCode != 3 ||
			last.ContainerID != "containerd://x1" {
			t.Errorf("got %+v, want the end of x1 as the last state", got)
		}
	})
}

// What is left of a start that was broken off may be impossible to remove: the pod goes on without it.
func TestAnInterruptedStartThatLastsIsAFailedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{fail: map[plan.Kind]error{plan.RemoveContainer: errors.New("cannot delete running task x")}}
		obs := runs()
		obs.At = time.Now()
		obs.Containers = []topic.Container{{
			ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerExited, ExitCode: 128, FinishedAt: time.Now(),
			Reason: "StartError", Message: "failed to start containerd task: context canceled",
		}}
		h.obs = obs
		w, r := launch(t, Config{Pod: testPod()}, obs, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := h.count("start container app"); n != 0 {
			t.Errorf("started %d times while the removal may still succeed: %v", n, h.actions)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := h.count("start container app"); n != 1 {
			t.Errorf("started %d times, want once: %v", n, h.actions)
		}
		_, stated := r.last()
		status := stated.Status
		last := status.ContainerStatuses[0].LastTerminationState.Terminated
		if last == nil || !strings.Contains(last.Message, "cannot delete running task x") {
			t.Errorf("the last state is %+v, which doesn't tell of the removal", last)
		}
		if n := status.ContainerStatuses[0].RestartCount; n != 1 {
			t.Errorf("%d restarts, want 1: the first has its number", n)
		}
		if n := h.count("remove container x"); n > 10 {
			t.Errorf("the removal was tried %d times in a minute", n)
		}
	})
}
