package worker

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// awaited is room that is there once end is called, or a minute has passed.
func awaited() (room Room, end func()) {
	over := make(chan struct{})
	return Room{ends: []<-chan struct{}{over}, until: time.Now().Add(time.Minute)}, func() { close(over) }
}

// restartsForCPU is the pod with a container that can't be resized while it runs.
func restartsForCPU(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{
		ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer,
	}}
	return pod
}

// older is the container of running under an ID that is no later one's.
func older() topic.PodObservation {
	obs := running()
	obs.Containers[0].ID = "app-0"
	return obs
}

// wantCalls checks how often the actions were begun.
func wantCalls(t *testing.T, h *fakeExecutor, when string, want map[string]int) {
	t.Helper()
	for key, n := range want {
		if got := h.count(key); got != n {
			t.Errorf("%s: %q was done %d times, want %d", when, key, got, n)
		}
	}
}

// Nothing of a resize is done before there is room for it, and all of it then.
func TestAResizeWaitsForItsRoom(t *testing.T) {
	const stop, start, size = "stop container app-0", "start container app", "resize pod "
	inPlace := func(p *corev1.Pod) *corev1.Pod { return p }
	for name, c := range map[string]struct {
		of   func(*corev1.Pod) *corev1.Pod
		ends bool
		done map[string]int
	}{
		"in place":                                 {inPlace, true, map[string]int{size: 1, stop: 0, start: 0}},
		"in place, and the victim doesn't end":     {inPlace, false, map[string]int{size: 1, stop: 0, start: 0}},
		"with a restart":                           {restartsForCPU, true, map[string]int{size: 1, stop: 1, start: 1}},
		"with a restart, and no end of the victim": {restartsForCPU, false, map[string]int{size: 1, stop: 1, start: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &fakeExecutor{obs: older()}
				w, r := launch(t, Config{Pod: c.of(sized("1", 1))}, older(), h)
				w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
				settle()
				room, end := awaited()
				w.Await(room)
				w.Update(c.of(sized("2", 2)), nil)
				time.Sleep(50 * time.Second)
				wantCalls(t, h, "without room", map[string]int{size: 0, stop: 0, start: 0})
				if _, s := r.last(); condition(s, corev1.PodResizeInProgress) == nil {
					t.Error("the status doesn't say that the resize is under way")
				}
				if c.ends {
					end()
				} else {
					time.Sleep(10 * time.Second)
				}
				settle()
				wantCalls(t, h, "with room", c.done)
			})
		})
	}
}

// A container that must be replaced anyway doesn't wait for the room of a resize: neither for its stop nor for its
// start.
func TestAContainerIsReplacedWhileAResizeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probed := func(p *corev1.Pod) *corev1.Pod {
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{}
			return p
		}
		h := &fakeExecutor{obs: older()}
		w, _ := launch(t, Config{Pod: probed(sized("1", 1))}, older(), h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		room, end := awaited()
		w.Await(room)
		w.Update(probed(sized("2", 2)), nil)
		w.Probe(topic.ProbeKey{UID: "u1", Container: "app", Kind: topic.ProbeLiveness}, topic.Probe{ContainerID: "app-0"})
		time.Sleep(20 * time.Second)
		wantCalls(t, h, "without room", map[string]int{
			"stop container app-0": 1, "start container app": 1, "resize pod ": 0,
		})
		end()
		settle()
		wantCalls(t, h, "with room", map[string]int{
			"stop container app-0": 1, "start container app": 1, "resize pod ": 1,
		})
	})
}

// A pod that is admitted to the place of others gets its sandbox when they have ended; its image is pulled meanwhile.
func TestASandboxWaitsForItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room, end := awaited()
		h := &fakeExecutor{}
		w, _ := launch(t, Config{Pod: testPod(), Room: room}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		time.Sleep(50 * time.Second)
		wantCalls(t, h, "without room", map[string]int{"create sandbox ": 0, "ensure image app": 1})
		end()
		settle()
		wantCalls(t, h, "with room", map[string]int{"create sandbox ": 1, "start container app": 1})
	})
}

// Several ends are waited for, in any order, and the latest of their deadlines counts.
func TestRoomIsThereWhenAllHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		first, second := &Worker{over: make(chan struct{})}, &Worker{over: make(chan struct{})}
		var room Room
		if room.Pending(now) {
			t.Error("nothing is waited for, and room is pending")
		}
		room.Await(first, now.Add(time.Minute))
		room.Await(second, now.Add(time.Second))
		close(second.over)
		if !room.Pending(now.Add(30*time.Second)) || room.Pending(now.Add(time.Minute)) {
			t.Error("want room to be pending until the first has ended, or its minute has passed")
		}
		close(first.over)
		if room.Pending(now) {
			t.Error("both have ended, and room is pending")
		}
	})
}

// A pod asks for devices and CPUs of its own when those have ended that have them still: it would be refused before.
func TestAPodAsksForItsOwnWhenThereIsRoom(t *testing.T) {
	for name, begun := range map[string]bool{"one that begins": false, "one that runs and is resized": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				room, end := awaited()
				h := &fakeExecutor{}
				if begun {
					h.obs = running()
				}
				_, r := launch(t, Config{Pod: testPod(), Room: room, Allocates: true}, h.obs, h)
				settle()
				if pod, _ := r.last(); pod.Allocates != begun {
					t.Errorf("without room it asks: %v, want %v", pod.Allocates, begun)
				}
				end()
				settle()
				if pod, _ := r.last(); !pod.Allocates {
					t.Error("with room it doesn't ask")
				}
			})
		})
	}
}

// A pod that is deleted before there is room for it has its claims given back, and its end waits for no other's.
func TestAPodWithoutRoomEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room, _ := awaited()
		pod := testPod()
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "toy", ResourceClaimName: new("toy")}}
		w, r := launch(t, Config{Pod: pod, Room: room, Allocates: true}, topic.PodObservation{}, &fakeExecutor{})
		settle()
		gone := pod.DeepCopy()
		gone.DeletionTimestamp, gone.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(30))
		w.Update(gone, nil)
		settle()
		if pod, _ := r.last(); pod.Lifecycle != topic.Terminated || !pod.Allocates {
			t.Errorf("it is %s, and its claims are given back: %v", pod.Lifecycle, pod.Allocates)
		}
	})
}

// Who waits for a pod's end asks for what it had: the bus hears of the end first.
func TestAnEndIsStatedBeforeItIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := testPod()
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		w, r := launch(t, Config{Pod: pod}, runs(), &fakeExecutor{})
		settle()
		early := false
		r.mu.Lock()
		r.onPod = func(p topic.Pod) { early = early || p.Lifecycle == topic.Terminated && w.Over() }
		r.mu.Unlock()
		done := runs()
		done.Containers[0].State, done.Containers[0].FinishedAt = topic.ContainerExited, time.Now()
		w.Observe(done)
		settle()
		if !w.Over() || early {
			t.Errorf("it is over: %v, before it is stated: %v", w.Over(), early)
		}
	})
}
