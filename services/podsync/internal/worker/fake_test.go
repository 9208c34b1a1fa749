package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

// fakeExecutor keeps a pod in memory as a runtime would: actions change it and end with a reading.
type fakeExecutor struct {
	mu      sync.Mutex
	obs     topic.PodObservation
	actions []string
	reads   time.Duration
	fail    map[plan.Kind]error
	slow    map[plan.Kind]time.Duration
	inert   map[plan.Kind]bool          // succeed and change nothing
	deaf    map[plan.Kind]time.Duration // take so long even where they are cancelled
	// unread take effect and can't be read, also when their caller has given up; they fail nevertheless.
	unread map[plan.Kind]error
	turns  []slots.Turn
	// left is what ended containers leave, by ID; read only after slowDisk.
	left     map[string]string
	slowDisk time.Duration
}

func (h *fakeExecutor) TerminationMessage(c *topic.Container) string {
	time.Sleep(h.slowDisk)
	return h.left[c.ID]
}

func (h *fakeExecutor) Do(ctx context.Context, s Snapshot, a plan.Action) Outcome {
	h.mu.Lock()
	slow, fail := h.slow[a.Kind], h.fail[a.Kind]
	h.actions, h.turns = append(h.actions, a.Key()), append(h.turns, s.Turn)
	h.mu.Unlock()
	time.Sleep(h.deaf[a.Kind])
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
	h.obs.At = time.Now().Add(h.reads) // the bubble's clock stands still between two actions
	obs := h.obs
	obs.Sandboxes, obs.Containers = slices.Clone(obs.Sandboxes), slices.Clone(obs.Containers)
	if a.Kind == plan.EnsureImage || a.Kind == plan.ReleaseNode {
		return Outcome{Images: Images{Image: image.Image{Ref: "sha256:1"}}}
	}
	return Outcome{Obs: &obs}
}

func (h *fakeExecutor) apply(a plan.Action) {
	switch a.Kind {
	case plan.CreateSandbox:
		h.obs.Sandboxes = append([]topic.Sandbox{{ID: "s", Attempt: a.Attempt, Ready: true, IPs: []string{"10.0.0.2"}}},
			h.obs.Sandboxes...)
	case plan.StartContainer:
		h.obs.Containers = append([]topic.Container{{
			ID: a.Container + "-1", Name: a.Container, SandboxID: "s", State: topic.ContainerRunning, StartedAt: time.Now(),
			RestartCount: int(a.Attempt), Attempt: a.Attempt,
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

func (h *fakeExecutor) count(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, d := range h.actions {
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
	onPod    func(topic.Pod) // may be nil
}

func (r *record) Worked(_ types.UID, operation string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds = append(r.rounds, operation)
	if took <= 0 {
		r.rounds = append(r.rounds, "in no time")
	}
}

func (*record) Stated(types.UID, time.Time, *corev1.PodStatus, *corev1.PodStatus) {}
func (*record) Rejected(string)                                                   {}

func (r *record) Pod(p *topic.Pod, object *topic.APIPod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p != nil {
		r.pods = append(r.pods, *p)
		if r.onPod != nil {
			r.onPod(*p)
		}
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
func (node) MaxBackoff() time.Duration          { return 5 * time.Minute }
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
func launch(t *testing.T, cfg Config, obs topic.PodObservation, h *fakeExecutor) (*Worker, *record) {
	t.Helper()
	return launchFrom(t, topic.SourceAPI, cfg, obs, h)
}

func launchFrom(t *testing.T, source topic.Source, cfg Config, obs topic.PodObservation,
	h *fakeExecutor,
) (*Worker, *record) {
	t.Helper()
	r := &record{}
	cfg.Node, cfg.Source, cfg.Metrics = node{}, source, r
	// actions change them
	h.obs.Sandboxes, h.obs.Containers = slices.Clone(h.obs.Sandboxes), slices.Clone(h.obs.Containers)
	w := New(cfg, obs, h, r, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		w.Run(ctx, ctx)
		w.Wait()
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
