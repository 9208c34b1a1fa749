package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/slots"
)

// hands keeps a pod in memory as a runtime would: deeds change it and end with a reading.
type hands struct {
	mu    sync.Mutex
	obs   topic.PodObservation
	deeds []string
	reads time.Duration
	fail  map[plan.Kind]error
	slow  map[plan.Kind]time.Duration
	inert map[plan.Kind]bool // succeed and change nothing
	// unread take effect and can't be read, also when their caller has given up; they fail all the same.
	unread map[plan.Kind]error
	turns  []slots.Turn
	// left is what ended containers leave, by ID; read only after slowDisk.
	left     map[string]string
	slowDisk time.Duration
}

func (h *hands) TerminationMessage(c *topic.Container) string {
	time.Sleep(h.slowDisk)
	return h.left[c.ID]
}

func (h *hands) Do(ctx context.Context, s Snapshot, a plan.Action) Outcome {
	h.mu.Lock()
	slow, fail := h.slow[a.Kind], h.fail[a.Kind]
	h.deeds, h.turns = append(h.deeds, a.Key()), append(h.turns, s.Turn)
	h.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.unread[a.Kind] != nil {
				h.apply(a)
			}
			return Outcome{Err: context.Cause(ctx)}
		}
	}
	if err := h.unread[a.Kind]; err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.apply(a)
		return Outcome{Err: err}
	}
	if fail != nil {
		return Outcome{Err: fail}
	}
	time.Sleep(time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.inert[a.Kind] {
		h.apply(a)
	}
	h.reads++
	h.obs.At = time.Now().Add(h.reads) // the bubble's clock stands still between two deeds
	obs := h.obs
	obs.Sandboxes, obs.Containers = slices.Clone(obs.Sandboxes), slices.Clone(obs.Containers)
	if a.Kind == plan.EnsureImage || a.Kind == plan.ReleaseNode {
		return Outcome{Images: Images{Image: image.Image{Ref: "sha256:1"}}}
	}
	return Outcome{Obs: &obs}
}

func (h *hands) apply(a plan.Action) {
	switch a.Kind {
	case plan.CreateSandbox:
		h.obs.Sandboxes = append([]topic.Sandbox{{ID: "s", Attempt: a.Attempt, Ready: true, IPs: []string{"10.0.0.2"}}}, h.obs.Sandboxes...)
	case plan.StartContainer:
		h.obs.Containers = append([]topic.Container{{
			ID: a.Container + "-1", Name: a.Container, SandboxID: "s", State: topic.ContainerRunning, StartedAt: time.Now(), RestartCount: int(a.Attempt), Attempt: a.Attempt,
		}}, h.obs.Containers...)
	case plan.StopContainer:
		for i := range h.obs.Containers {
			if h.obs.Containers[i].ID == a.ID {
				h.obs.Containers[i].State = topic.ContainerExited
				h.obs.Containers[i].FinishedAt = time.Now()
			}
		}
	case plan.StopSandbox:
		for i := range h.obs.Sandboxes {
			h.obs.Sandboxes[i].Ready = false
		}
	case plan.RemoveSandboxes:
		h.obs.Sandboxes, h.obs.Containers = nil, nil
	}
}

func (h *hands) count(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, d := range h.deeds {
		if d == key {
			n++
		}
	}
	return n
}

// record keeps what the worker reports.
type record struct {
	mu       sync.Mutex
	pods     []topic.Pod
	objects  []topic.APIPod
	statuses []topic.PodStatus
	events   []string
	rounds   []string
}

func (r *record) Worked(operation string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds = append(r.rounds, operation)
	if took <= 0 {
		r.rounds = append(r.rounds, "in no time")
	}
}

func (*record) Stated(time.Time, *corev1.PodStatus, *corev1.PodStatus) {}

func (r *record) Pod(p *topic.Pod, object *topic.APIPod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p != nil {
		r.pods = append(r.pods, *p)
	}
	if object != nil {
		r.objects = append(r.objects, *object)
	}
}

func (r *record) Status(s topic.PodStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses = append(r.statuses, s)
}

func (r *record) Event(_ *corev1.Pod, _, _, reason, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, reason)
}

func (r *record) has(event string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.events, event)
}

func (r *record) last() (topic.Pod, topic.PodStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[len(r.pods)-1], r.statuses[len(r.statuses)-1]
}

type node struct{}

func (node) HostIPs() []string                  { return []string{"192.0.2.1"} }
func (node) RuntimeName() string                { return "containerd" }
func (node) RecursiveReadOnly(*corev1.Pod) bool { return false }
func (node) MaxBackoff() time.Duration          { return 0 }
func (node) NetworkProblem() string             { return "" }

func testPod() *corev1.Pod {
	grace := int64(30)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "app", Image: "a"}},
			Volumes:    []corev1.Volume{{Name: "data"}},
		},
	}
}

// launch runs a worker in the test's bubble until the test ends.
func launch(t *testing.T, cfg Config, obs topic.PodObservation, h *hands) (*Worker, *record) {
	t.Helper()
	return launchFrom(t, topic.SourceAPI, cfg, obs, h)
}

func launchFrom(t *testing.T, source topic.Source, cfg Config, obs topic.PodObservation, h *hands) (*Worker, *record) {
	t.Helper()
	r := &record{}
	cfg.Node, cfg.Source, cfg.Meter = node{}, source, r
	h.obs.Sandboxes, h.obs.Containers = slices.Clone(h.obs.Sandboxes), slices.Clone(h.obs.Containers) // deeds change them
	w := New(cfg, obs, h, r, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		w.Run(ctx, ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w, r
}

func settle() {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

func TestAPodStartsAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hands{}
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
			t.Fatalf("got lifecycle %s, released %v, finished %v; want terminated and neither before the volumes are unmounted", p.Lifecycle, p.Released, s.Finished)
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

func TestAStaleReportStartsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hands{}
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
		h := &hands{}
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
		if _, s := r.last(); s.Status.Phase != corev1.PodRunning || s.Status.ContainerStatuses[0].State.Running == nil || s.Status.PodIP == "" {
			t.Errorf("got status %v, want the one before", s.Status)
		}
		if len(h.deeds) != 3 {
			t.Errorf("got deeds %v, want the three of the start", h.deeds)
		}
	})
}

func TestDeletionEndsAPullAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hands{slow: map[plan.Kind]time.Duration{plan.EnsureImage: time.Hour}}
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
		h := &hands{}
		obs := topic.PodObservation{
			At:         time.Now(),
			Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
			Containers: []topic.Container{{ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerRunning}},
		}
		w, _ := launch(t, Config{Pod: testPod()}, obs, h)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		if len(h.deeds) != 0 {
			t.Errorf("nothing is to be done for a pod that runs, but %v was", h.deeds)
		}
	})
}

func TestAFailedStopIsRetriedWithoutASpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hands{fail: map[plan.Kind]error{plan.StopContainer: errors.New("the runtime is late")}}
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
			t.Error("no Event tells of the stop that keeps failing")
		}
	})
}

func TestTheDeadlineEndsThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hands{}
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
		h := &hands{slow: map[plan.Kind]time.Duration{plan.StopContainer: time.Hour}}
		obs := topic.PodObservation{
			At:         time.Now(),
			Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
			Containers: []topic.Container{{ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerRunning}},
		}
		grace, end := int64(30), time.Now().Add(12*time.Second)
		pod := testPod()
		pod.DeletionTimestamp = &metav1.Time{Time: end}
		_, r := launch(t, Config{Pod: pod, Restored: &topic.Pod{Pod: pod, Lifecycle: topic.Terminating, GracePeriodSeconds: &grace, Deadline: &end}}, obs, h)
		settle()
		p, _ := r.last()
		if !p.Deadline.Equal(end) {
			t.Errorf("got the deadline %s, want %s: a restart must not give the pod more time", p.Deadline, end)
		}
	})
}

func TestAPodThatIsToStopWaitsForAnEarlierProcesssStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hands{fail: map[plan.Kind]error{plan.RemoveContainer: errors.New("it is being started")}}
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
			t.Fatalf("the pod is %s while its container may be starting, deeds %v", p.Lifecycle, h.deeds)
		}
		h.mu.Lock()
		h.obs.Containers[0].State = topic.ContainerRunning
		obs := h.obs
		h.mu.Unlock()
		obs.Containers = slices.Clone(obs.Containers)
		obs.At = time.Now()
		w.Observe(obs)
		settle()
		if p, _ := r.last(); p.Lifecycle != topic.Terminated || h.count("stop container x") != 1 || h.count("stop sandbox s") != 1 {
			t.Errorf("the pod is %s, deeds %v", p.Lifecycle, h.deeds)
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
						ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerExited, ExitCode: 1, Attempt: 40, RestartCount: 40, FinishedAt: time.Now(),
					}},
				}
				h := &hands{obs: obs}
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
