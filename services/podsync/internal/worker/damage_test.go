package worker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// damaged is a runtime that can't ever tell all of the pod.
func damaged(obs topic.PodObservation) *fakeExecutor {
	obs.Errors = []string{"its metadata is damaged"}
	return &fakeExecutor{obs: obs, slow: map[plan.Kind]time.Duration{plan.ReadPod: time.Minute}}
}

// What can't be inspected ever again, as after a crash of the machine, doesn't keep its pod from being removed.
func TestADamagedPodIsRemoved(t *testing.T) {
	dead := runs()
	dead.Sandboxes[0].Ready, dead.Containers[0].State = false, topic.ContainerExited
	half := runs()
	half.Containers = append(half.Containers, topic.Container{
		ID: "y", Name: "app", SandboxID: "s",
		State: topic.ContainerExited,
	})
	for name, obs := range map[string]topic.PodObservation{"all is dead": dead, "a container runs": half} {
		for when, before := range map[string]bool{"from before": true, "meanwhile": false} {
			t.Run(name+", damaged "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := damaged(obs)
					first := obs
					first.At = time.Now()
					if before {
						first.Errors = h.obs.Errors
					}
					w, _ := launch(t, Config{Pod: testPod()}, first, h)
					settle()
					w.Update(deletedWithin(30), nil)
					w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
					w.Remove()
					time.Sleep(4 * time.Minute)
					synctest.Wait()
					if !w.Gone() {
						t.Errorf("the pod is there still after actions %v", h.actions)
					}
					if n := len(h.actions); n > 25 {
						t.Errorf("%d actions, want pauses between them", n)
					}
				})
			})
		}
	}
}

// A start whose effect can't be read isn't repeated, and what it has brought up is stopped when the pod ends.
func TestAStartThatCannotBeReadIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := damaged(topic.PodObservation{})
		h.obs.Errors = nil
		w, r := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, h)
		settle()
		h.mu.Lock()
		h.obs.Errors = []string{"its metadata is damaged"}
		h.mu.Unlock()
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := h.count("start container app"); n != 1 {
			t.Errorf("the container was started %d times", n)
		}
		w.Update(deletedWithin(30), nil)
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if p, _ := r.last(); p.Lifecycle != topic.Terminated || h.count("stop container app-1") != 1 {
			t.Errorf("the pod is %s after actions %v", p.Lifecycle, h.actions)
		}
	})
}

// How a pod has ended isn't said before it is known, if that is a matter of a while.
func TestThePhaseWaitsForACompleteReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obs := runs()
		obs.Containers[0].State, obs.Containers[0].ExitCode = topic.ContainerExited, 137
		h := damaged(obs)
		obs.Errors = h.obs.Errors
		pod := deletedWithin(30)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		w, r := launch(t, Config{Pod: pod}, obs, h)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if _, s := r.last(); s.Status.Phase == corev1.PodFailed || s.Status.Phase == corev1.PodSucceeded {
			t.Errorf("the pod is %s while nobody knows", s.Status.Phase)
		}
		obs.Errors, obs.At = nil, time.Now().Add(time.Minute)
		obs.Sandboxes[0].Ready = false
		obs.Containers[0].ExitCode = 0
		w.Observe(obs)
		time.Sleep(time.Minute) // whether its sandbox was stopped, nobody knew either: it is stopped again
		settle()
		if _, s := r.last(); s.Status.Phase != corev1.PodSucceeded {
			t.Errorf("the pod is %s, want Succeeded", s.Status.Phase)
		}
	})
}

// A hiccup of the registry doesn't put the pod's start behind those of all other pods.
func TestAFailedPullDoesNotCountAgainstTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{fail: map[plan.Kind]error{plan.EnsureImage: errors.New("the registry is away")}}
		w, _ := launch(t, Config{Pod: testPod(), Rank: 7}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		time.Sleep(5 * time.Second)
		h.mu.Lock()
		h.fail = nil
		h.mu.Unlock()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		for i, action := range h.actions {
			if action == "start container app" && h.turns[i].Rank == 7 {
				return
			}
		}
		t.Errorf("actions %v had the ranks %v, want the start to have its own", h.actions, h.turns)
	})
}
