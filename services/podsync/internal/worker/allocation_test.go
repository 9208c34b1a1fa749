package worker

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// dead is what a reboot leaves of a pod at the runtime.
func dead() topic.PodObservation {
	return topic.PodObservation{
		At:        time.Now(),
		Sandboxes: []topic.Sandbox{{ID: "s"}},
		Containers: []topic.Container{{
			ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerExited, ExitCode: 255, FinishedAt: time.Now(),
		}},
	}
}

var refusal = topic.Allocation{
	Phase: topic.AllocationRefused, Reason: "UnexpectedAdmissionError", Message: "there is no such device any more",
}

// A refused pod of which nothing runs fails, so that its controller makes another one. It may have been refused while
// it ran.
func TestARefusedPodFailsWhenNothingOfItRuns(t *testing.T) {
	nothing := func() topic.PodObservation { return topic.PodObservation{} }
	for name, at := range map[string]struct{ before, after func() topic.PodObservation }{
		"a new pod":                       {before: nothing},
		"after a reboot":                  {before: dead},
		"its sandbox died after it":       {before: runs, after: dead},
		"its container has ended":         {before: runs, after: exited},
		"it was gone from the runtime":    {before: runs, after: nothing},
		"it could not be read, then died": {before: unread, after: dead},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &fakeExecutor{obs: at.before()}
				w, r := launch(t, Config{Pod: testPod(), Allocates: true}, at.before(), h)
				w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
				w.Allocation(refusal)
				settle()
				if at.after != nil {
					if r.has(refusal.Reason) {
						t.Error("it was failed while it may have run")
					}
					h.mu.Lock()
					h.obs = at.after()
					h.mu.Unlock()
					seen := at.after()
					seen.At = time.Now()
					w.Observe(seen)
				}
				w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
				settle()
				if _, s := r.last(); s.Status.Phase != corev1.PodFailed || s.Status.Reason != refusal.Reason {
					t.Errorf("its phase is %s with the reason %q", s.Status.Phase, s.Status.Reason)
				}
				if !r.has(refusal.Reason) || h.count("create sandbox ") > 0 {
					t.Errorf("events %v, actions %v", r.events, h.actions)
				}
			})
		})
	}
}

func unread() topic.PodObservation {
	obs := runs()
	obs.Errors = []string{"container app: can't be reached"}
	return obs
}

// exited is a pod whose container has ended in a sandbox that is ready.
func exited() topic.PodObservation {
	obs := runs()
	obs.Containers[0].State, obs.Containers[0].FinishedAt = topic.ContainerExited, time.Now()
	return obs
}

// Whether a sandbox is up tells the resource daemon that what the pod has was made ready, also before it says so.
func TestAPodThatAllocatesTellsOfItsSandbox(t *testing.T) {
	for name, c := range map[string]struct {
		at   func() topic.PodObservation
		want bool
	}{
		"it runs": {runs, true}, "its container has ended": {exited, true}, "after a reboot": {dead, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, r := launch(t, Config{Pod: testPod(), Allocates: true}, c.at(), &fakeExecutor{obs: c.at()})
			settle()
			if p, _ := r.last(); p.Sandboxed != c.want {
				t.Errorf("%s: sandboxed: %v", name, p.Sandboxed)
			}
		})
	}
}

// A refusal doesn't end what runs, and holds up its next start, with the reason.
func TestARefusedPodRunsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := testPod()
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other", Image: "a"})
		// half has the other container running.
		half := func() topic.PodObservation {
			obs := exited()
			obs.Containers = append(obs.Containers, topic.Container{
				ID: "y", Name: "other", SandboxID: "s", State: topic.ContainerRunning,
			})
			return obs
		}
		h := &fakeExecutor{obs: half()}
		w, r := launch(t, Config{Pod: pod, Allocates: true}, half(), h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		w.Allocation(refusal)
		time.Sleep(time.Minute)
		synctest.Wait()
		_, s := r.last()
		if waiting := s.Status.ContainerStatuses[0].State.Waiting; waiting == nil || waiting.Message != refusal.Message ||
			s.Status.Phase != corev1.PodRunning {
			t.Errorf("its status is %+v", s.Status)
		}
		w.Allocation(topic.Allocation{Phase: topic.Allocated})
		settle()
		if h.count("start container app") != 1 {
			t.Errorf("it isn't started when it has what it asks for: %v", h.actions)
		}
	})
}

// As long as it isn't allocated nothing of a pod is created, and its status says why.
func TestAPodWaitsForItsAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{}
		w, r := launch(t, Config{Pod: testPod(), Allocates: true}, topic.PodObservation{}, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		w.Allocation(topic.Allocation{Phase: topic.Allocating, Message: "waiting for a device"})
		time.Sleep(time.Minute)
		synctest.Wait()
		_, s := r.last()
		if waiting := s.Status.ContainerStatuses[0].State.Waiting; waiting == nil ||
			waiting.Message != "waiting for a device" {
			t.Errorf("its status is %+v", s.Status.ContainerStatuses)
		}
		if len(h.actions) != 0 {
			t.Errorf("done before: %v", h.actions)
		}
		w.Allocation(topic.Allocation{Phase: topic.Allocated})
		settle()
		if _, s := r.last(); s.Status.Phase != corev1.PodRunning {
			t.Errorf("its phase is %s", s.Status.Phase)
		}
	})
}

// The control plane gives the devices of a pod in a terminal phase to others. So the phase has to wait for the drivers,
// however the pod ends.
func TestThePhaseIsTerminalOnlyWhenClaimsAreGivenBack(t *testing.T) {
	claiming := func(claim func(*corev1.Pod)) *corev1.Pod {
		pod := testPod()
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		claim(pod)
		return pod
	}
	own := func(pod *corev1.Pod) {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "toy", ResourceClaimName: new("toy")}}
	}
	extended := func(pod *corev1.Pod) {
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "toy"}
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		end  func(w *Worker)
		want corev1.PodPhase
	}{
		"it ends by itself": {pod: claiming(own), end: func(w *Worker) { w.Observe(exited()) }, want: corev1.PodSucceeded},
		"its extended resources are a claim": {
			pod: claiming(extended), end: func(w *Worker) { w.Observe(exited()) }, want: corev1.PodSucceeded,
		},
		"it is evicted": {
			pod: claiming(own), end: func(w *Worker) { w.Evict(Eviction{Reason: "Evicted"}) }, want: corev1.PodFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &fakeExecutor{obs: runs()}
				w, r := launch(t, Config{Pod: c.pod, Allocates: true}, runs(), h)
				w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
				w.Allocation(topic.Allocation{Phase: topic.Allocated})
				settle()
				h.mu.Lock()
				h.obs = exited()
				h.mu.Unlock()
				c.end(w)
				w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
				time.Sleep(time.Minute)
				synctest.Wait()
				p, s := r.last()
				if p.Lifecycle != topic.Terminated || s.Status.Phase != corev1.PodRunning || s.Finished {
					t.Fatalf("its claims are prepared: %s, %s, finished %v", p.Lifecycle, s.Status.Phase, s.Finished)
				}
				// Its containers have ended, and that can be seen.
				if s.Status.ContainerStatuses[0].State.Terminated == nil {
					t.Errorf("its container is %+v", s.Status.ContainerStatuses[0].State)
				}
				w.Allocation(topic.Allocation{Phase: topic.AllocationReleased})
				settle()
				if _, s := r.last(); s.Status.Phase != c.want || !s.Finished {
					t.Errorf("got %s, finished %v; want %s", s.Status.Phase, s.Finished, c.want)
				}
			})
		})
	}
}

// A pod that has ended has its devices no longer. Their health may be why it has failed: its status keeps it.
func TestTheHealthOfDevicesStaysInTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := testPod()
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		h := &fakeExecutor{obs: runs()}
		w, r := launch(t, Config{Pod: pod, Allocates: true}, runs(), h)
		w.Allocation(topic.Allocation{Phase: topic.Allocated, Containers: map[string]topic.ContainerAllocation{"app": {
			Devices: []topic.AllocatedDevice{{
				Resource: "vendor.example/gpu", ID: "g0", Health: corev1.ResourceHealthStatusUnhealthy,
			}},
		}}})
		settle()
		h.mu.Lock()
		h.obs = exited()
		h.mu.Unlock()
		w.Observe(exited())
		settle()
		for range 2 { // twice: what was said last counts
			w.Allocation(topic.Allocation{Phase: topic.AllocationReleased})
			settle()
			_, s := r.last()
			devices := s.Status.ContainerStatuses[0].AllocatedResourcesStatus
			if s.Status.Phase != corev1.PodSucceeded || len(devices) != 1 || len(devices[0].Resources) != 1 ||
				devices[0].Resources[0].Health != corev1.ResourceHealthStatusUnhealthy {
				t.Errorf("%s, with the devices %+v", s.Status.Phase, devices)
			}
		}
	})
}

// After a restart the status keeps the devices until it is known which ones the pod has.
func TestTheDevicesStayInTheStatusUntilTheyAreKnown(t *testing.T) {
	app := corev1.ContainerStatus{Name: "app", AllocatedResourcesStatus: []corev1.ResourceStatus{{
		Name: "vendor.example/gpu", Resources: []corev1.ResourceHealth{{
			ResourceID: "g0", Health: corev1.ResourceHealthStatusHealthy,
		}},
	}}}
	before := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{app}}
	for name, c := range map[string]struct {
		allocates bool
		said      topic.Allocation
		want      int
	}{
		"not known":           {allocates: true, want: 1},
		"it has none":         {allocates: true, said: topic.Allocation{Phase: topic.Allocated}},
		"it asks for nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				restored := &topic.Pod{Pod: testPod(), Lifecycle: topic.Syncing, Allocates: c.allocates}
				w, r := launch(t, Config{
					Pod: testPod(), Allocates: c.allocates, Restored: restored, Previous: before,
				}, runs(), &fakeExecutor{obs: runs()})
				w.Allocation(c.said)
				settle()
				_, s := r.last()
				if got := s.Status.ContainerStatuses[0].AllocatedResourcesStatus; len(got) != c.want {
					t.Errorf("the status has the devices %+v, want %d", got, c.want)
				}
			})
		})
	}
}

// A pod that doesn't ask for anything under the policy of today has nothing when nothing is said of it any more,
// whatever it had before: its container is moved to where all are.
func TestAPodMovesWhenNothingIsSaidOfItAnyMore(t *testing.T) {
	for name, c := range map[string]struct {
		allocates bool
		want      plan.Cpuset
	}{
		"it asks for nothing":     {want: plan.Cpuset{CPUs: "0-3", MemoryNodes: "0-1"}},
		"it needs what was given": {allocates: true, want: plan.Cpuset{CPUs: "2", MemoryNodes: "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &fakeExecutor{obs: runs()}
				shared := func() plan.Cpuset { return plan.Cpuset{CPUs: "0-3", MemoryNodes: "0-1"} }
				w, _ := launch(t, Config{Pod: testPod(), Allocates: c.allocates, Shared: shared}, runs(), h)
				w.Allocation(topic.Allocation{Phase: topic.Allocated, Containers: map[string]topic.ContainerAllocation{
					"app": {CPUs: "2", MemoryNodes: "0"},
				}})
				settle()
				w.Allocation(topic.Allocation{})
				settle()
				if got := w.state.containers.of("app").run("x").Cpuset; got != c.want {
					t.Errorf("its container is on %+v, want %+v", got, c.want)
				}
			})
		})
	}
}

// The containers of a pod that waits for its allocation, or doesn't get it, leave the CPUs that others have alone now.
func TestAPodWithoutItsAllocationLeavesTheCPUsOfOthers(t *testing.T) {
	for _, phase := range []topic.AllocationPhase{topic.AllocationRefused, topic.Allocating} {
		for name, c := range map[string]struct {
			has  string
			want string
		}{
			"it shares": {want: "0,5-7"},
			"it has":    {has: "3", want: "3"},
		} {
			t.Run(string(phase)+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := &fakeExecutor{obs: runs()}
					shared := func() plan.Cpuset { return plan.Cpuset{CPUs: "0,5-7"} }
					w, _ := launch(t, Config{Pod: testPod(), Allocates: true, Shared: shared}, runs(), h)
					settle()
					if got := w.state.containers.of("app").run("x").Cpuset; got != (plan.Cpuset{}) {
						t.Errorf("before anything is known its container was moved to %+v", got)
					}
					w.Allocation(topic.Allocation{Phase: phase, Containers: map[string]topic.ContainerAllocation{
						"app": {CPUs: c.has},
					}})
					settle()
					if got := w.state.containers.of("app").run("x").Cpuset; got.CPUs != c.want {
						t.Errorf("its container is on %+v, want %s", got, c.want)
					}
				})
			})
		}
	}
}
