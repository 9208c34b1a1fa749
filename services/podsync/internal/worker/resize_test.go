package worker

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// sized is the test's pod with so much CPU, of the generation.
func sized(cpu string, generation int64) *corev1.Pod {
	pod := testPod()
	pod.Generation = generation
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return pod
}

func running() topic.PodObservation {
	return topic.PodObservation{
		At:         time.Now(),
		Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
		Containers: []topic.Container{{ID: "app-1", Name: "app", SandboxID: "s", State: topic.ContainerRunning}},
	}
}

// size is what the status says that the container has, and that was allocated to it.
func size(s topic.PodStatus) (has, allocated string) {
	c := s.Status.ContainerStatuses[0]
	return c.Resources.Requests.Cpu().String(), c.AllocatedResources.Cpu().String()
}

func condition(s topic.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(s.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &s.Status.Conditions[i]
}

func TestAResizeIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := errors.New("cannot decrease memory limits: too much is used")
		h := &fakeExecutor{obs: running(), fail: map[plan.Kind]error{plan.ResizePod: fails}}
		w, r := launch(t, Config{Pod: sized("1", 1)}, running(), h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		w.Update(sized("2", 2), nil)
		settle()
		p, s := r.last()
		if has, allocated := size(s); has != "1" || allocated != "2" {
			t.Errorf("has %s, allocated %s; want 1 until it is done, and 2", has, allocated)
		}
		if c := condition(s, corev1.PodResizeInProgress); c == nil || c.Reason != corev1.PodReasonError ||
			c.Message != fails.Error() || c.ObservedGeneration != 2 {
			t.Errorf("condition %+v; want the error", c)
		}
		if before := p.Resize.Before["app-1"]; p.Resize == nil || before.Requests.Cpu().String() != "1" {
			t.Errorf("the bus is told %+v; want what the container has still", p.Resize)
		}

		// Another run of the daemon continues with it, and so does a node that only knows the pod's status, as after a
		// takeover.
		said := s.Status
		for _, restored := range []*topic.Pod{&p, nil} {
			h = &fakeExecutor{obs: running()}
			w, r = launch(t, Config{Pod: sized("2", 2), Restored: restored, Previous: said}, running(), h)
			w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
			time.Sleep(2 * time.Second)
			synctest.Wait()
			p, s := r.last()
			if has, allocated := size(s); has != "2" || allocated != "2" ||
				condition(s, corev1.PodResizeInProgress) != nil || p.Resize != nil {
				t.Errorf("has %s, allocated %s, conditions %+v; want it done", has, allocated, s.Status.Conditions)
			}
			if n := h.count("resize pod "); n != 1 {
				t.Errorf("resized %d times", n)
			}
		}
	})
}

// A resize may be what a container needs that crashes, for want of memory say: it doesn't wait for its back-off.
func TestAResizeEndsACrashBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obs := crashed(9, "app")
		h := &fakeExecutor{obs: obs}
		// The pod was known before, so that all nine restarts count.
		restored := &topic.Pod{Pod: sized("1", 1), Lifecycle: topic.Syncing, BackoffBase: map[string]int{"app": 0}}
		w, r := launch(t, Config{Pod: sized("1", 1), Restored: restored}, obs, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		if n := h.count("start container app"); n != 0 {
			t.Fatalf("the container was started %d times during its back-off", n)
		}
		w.Update(sized("2", 2), nil)
		settle()
		if n := h.count("start container app"); n != 1 {
			t.Errorf("started %d times after the resize, want once", n)
		}
		if p, _ := r.last(); p.BackoffBase["app"] != 9 {
			t.Errorf("the back-off begins at %v; want it at the ninth restart", p.BackoffBase)
		}
	})
}

// The status of the pod as a whole follows its containers.
func TestTheWholePodHasWhatItsContainersHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inCgroup := func(pod *corev1.Pod) *corev1.ResourceRequirements {
			return &corev1.ResourceRequirements{Requests: pod.Spec.Containers[0].Resources.Requests}
		}
		h := &fakeExecutor{obs: running(), slow: map[plan.Kind]time.Duration{plan.ResizePod: 5 * time.Second}}
		w, r := launch(t, Config{Pod: sized("1", 1), Applied: inCgroup}, running(), h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		for _, want := range [][2]string{{"1", "2"}, {"2", "2"}} {
			w.Update(sized("2", 2), nil)
			settle()
			_, s := r.last()
			if has, allocated := s.Status.Resources.Requests.Cpu().String(),
				s.Status.AllocatedResources.Cpu().String(); has != want[0] || allocated != want[1] {
				t.Errorf("has %s, allocated %s; want %v", has, allocated, want)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// What was allocated while a resize was being done isn't lost.
func TestAResizeIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{obs: running(), slow: map[plan.Kind]time.Duration{plan.ResizePod: 5 * time.Second}}
		w, r := launch(t, Config{Pod: sized("1", 1)}, running(), h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		w.Update(sized("2", 2), nil)
		settle()
		w.Update(sized("3", 3), nil)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		_, s := r.last()
		if has, _ := size(s); has != "3" || h.count("resize pod ") != 2 || condition(s, corev1.PodResizeInProgress) != nil {
			t.Errorf("has %s after %d resizes, conditions %+v", has, h.count("resize pod "), s.Status.Conditions)
		}
	})
}

func TestAResizeThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := launch(t, Config{Pod: sized("1", 1)}, running(), &fakeExecutor{obs: running()})
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		w.Update(sized("1", 2), &Pending{Reason: corev1.PodReasonDeferred, Message: "no CPU", Generation: 2})
		settle()
		_, s := r.last()
		if c := condition(s, corev1.PodResizePending); c == nil || c.Reason != corev1.PodReasonDeferred ||
			c.Message != "no CPU" {
			t.Errorf("condition %+v", c)
		}
		w.Update(sized("1", 3), nil)
		settle()
		if _, s := r.last(); condition(s, corev1.PodResizePending) != nil {
			t.Error("a request that was taken back is still pending")
		}
	})
}

// A worker that takes up a pod whose resize waits says so from its first status on.
func TestAResizeWaitsInTheFirstStatusToo(t *testing.T) {
	status := corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "no room",
		ObservedGeneration: 2,
	}}}
	s := newState(Config{Pod: testPod(), Pending: PendingBefore(&status, true)}, topic.PodObservation{})
	if got := s.resizeConditions(); !slices.Equal(got, status.Conditions) {
		t.Errorf("conditions %+v, want %+v", got, status.Conditions)
	}
	if p := PendingBefore(&status, false); p != nil {
		t.Errorf("a resize that was met waits: %+v", p)
	}
}
