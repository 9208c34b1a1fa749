package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// without is a pod that needs no volumes.
func without() *corev1.Pod {
	p := testPod()
	p.Spec.Volumes = nil
	return p
}

// crashed is a pod whose containers have ended just now, after so many restarts.
func crashed(restarts int, names ...string) topic.PodObservation {
	now := time.Now()
	obs := topic.PodObservation{
		At: now, Sandboxes: []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
	}
	for _, name := range names {
		obs.Containers = append(obs.Containers, topic.Container{
			ID: name + "-0", Name: name, SandboxID: "s", State: topic.ContainerExited, ExitCode: 1,
			RestartCount: restarts, Attempt: uint32(restarts), CreatedAt: now.Add(-2 * time.Second),
			StartedAt: now.Add(-time.Second), FinishedAt: now,
		})
	}
	return obs
}

func texts(ended []topic.Backoff) string {
	var all []string
	for _, b := range ended {
		all = append(all, fmt.Sprintf("%s %s in %s", b.Container, b.Reason, time.Until(b.Until).Round(time.Second)))
	}
	return strings.Join(all, "; ")
}

func TestACrashBackOffEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := without()
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "log", Image: "a"})
		obs := crashed(9, "app", "log")
		h := &fakeExecutor{obs: obs}
		// The pod was known before, so that all nine restarts count.
		restored := &topic.Pod{Pod: p, Lifecycle: topic.Syncing, BackoffBase: map[string]int{"app": 0, "log": 0}}
		w, r := launch(t, Config{Pod: p, Restored: restored}, obs, h)
		settle()
		if n := h.count("start container app"); n != 0 {
			t.Fatalf("the container was started %d times during its back-off", n)
		}
		ended, err := w.Retry(t.Context(), "app")
		if want := "app CrashLoopBackOff in 5m0s"; err != nil || texts(ended) != want {
			t.Fatalf("ended %q, %v; want %q", texts(ended), err, want)
		}
		settle()
		if a, l := h.count("start container app"), h.count("start container log"); a != 1 || l != 0 {
			t.Errorf("started app %d times and log %d times; want app once, and log not at all", a, l)
		}
		if pod, _ := r.last(); pod.BackoffBase["app"] != 9 || pod.BackoffBase["log"] != 0 {
			t.Errorf("the back-offs begin at %v; want that of app at its ninth restart", pod.BackoffBase)
		}
		if ended, err = w.Retry(t.Context(), "app"); err != nil || len(ended) != 0 {
			t.Errorf("ended %q, %v; want nothing, as it runs", texts(ended), err)
		}
	})
}

func TestFailedStepsAreTriedAtOnce(t *testing.T) {
	later := func(reason string) error {
		return &Failed{Reason: reason, Message: "no", RetryAt: time.Now().Add(time.Hour)}
	}
	for name, c := range map[string]struct {
		kind      plan.Kind
		container string
		reason    string
		want      string
		tried     string
	}{
		"image": {
			plan.EnsureImage, "app", "ImagePullBackOff",
			"app ImagePullBackOff in 1h0m0s", "ensure image app",
		},
		"image, whole pod": {plan.EnsureImage, "", "ErrImagePull", "app ErrImagePull in 1h0m0s", "ensure image app"},
		"sandbox": {
			plan.CreateSandbox, "", "FailedCreatePodSandBox",
			" FailedCreatePodSandBox in 1h0m0s", "create sandbox ",
		},
		"start": {
			plan.StartContainer, "app", "RunContainerError",
			"app RunContainerError in 1h0m0s", "start container app",
		},
		"of another":         {plan.EnsureImage, "log", "ErrImagePull", "", ""},
		"sandbox, container": {plan.CreateSandbox, "app", "FailedCreatePodSandBox", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &fakeExecutor{fail: map[plan.Kind]error{c.kind: later(c.reason)}}
				w, _ := launch(t, Config{Pod: without()}, topic.PodObservation{}, h)
				settle()
				before := h.count(c.tried)
				ended, err := w.Retry(t.Context(), c.container)
				if err != nil || texts(ended) != c.want {
					t.Fatalf("ended %q, %v; want %q", texts(ended), err, c.want)
				}
				settle()
				if n := h.count(c.tried) - before; c.tried != "" && n != 1 {
					t.Errorf("%q was tried %d times after that, want once", c.tried, n)
				}
			})
		})
	}
}

// snapshots is an executor that notes which images are wanted anew.
type snapshots struct {
	*fakeExecutor
	anew []bool
}

func (s *snapshots) Do(ctx context.Context, shot Snapshot, a plan.Action) Outcome {
	s.mu.Lock()
	if a.Kind == plan.EnsureImage {
		s.anew = append(s.anew, shot.Anew)
	} else if shot.Anew {
		s.anew = append(s.anew, false, true) // of what is no image
	}
	s.mu.Unlock()
	return s.fakeExecutor.Do(ctx, shot, a)
}

// The puller has a back-off of its own, which one try is to end, and no other.
func TestOnlyTheNextPullIsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &snapshots{fakeExecutor: &fakeExecutor{fail: map[plan.Kind]error{
			plan.EnsureImage: &Failed{Reason: "ImagePullBackOff", RetryAt: time.Now().Add(time.Minute)},
		}}}
		r := &record{}
		w := New(Config{Pod: without(), Node: node{}, Source: topic.SourceAPI, Metrics: r}, topic.PodObservation{}, h, r,
			slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { w.Run(ctx, ctx); w.Wait(); close(ended) }()
		settle()
		if _, err := w.Retry(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		settle()
		h.mu.Lock()
		h.fail[plan.EnsureImage] = errors.New("no registry") // is tried again after pauses of the worker's own
		h.mu.Unlock()
		time.Sleep(90 * time.Second)
		synctest.Wait()
		h.mu.Lock()
		if len(h.anew) < 3 || h.anew[0] || !h.anew[1] || slices.Contains(h.anew[2:], true) {
			t.Errorf("anew: %v; want the second pull alone", h.anew)
		}
		h.mu.Unlock()
		cancel()
		<-ended
	})
}

// Who asks a worker that ends hears that, and doesn't wait forever.
func TestAWorkerThatEndsIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &record{}
		h := &fakeExecutor{deaf: map[plan.Kind]time.Duration{plan.CreateSandbox: 10 * time.Second}}
		w := New(Config{Pod: without(), Node: node{}, Source: topic.SourceAPI, Metrics: r}, topic.PodObservation{}, h, r,
			slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { w.Run(ctx, ctx); w.Wait(); close(ended) }()
		settle()
		cancel() // it waits for its sandbox, and drops what it is told
		synctest.Wait()
		if _, err := w.Retry(t.Context(), ""); !errors.Is(err, errGone) {
			t.Errorf("while it ends: %v", err)
		}
		<-ended
		if _, err := w.Retry(t.Context(), ""); !errors.Is(err, errGone) {
			t.Errorf("after its end: %v", err)
		}
		gone, stop := context.WithCancelCause(t.Context())
		stop(errors.New("the caller is gone"))
		idle := &Worker{in: make(chan func(*Worker)), done: make(chan struct{})}
		if _, err := idle.Retry(gone, ""); err == nil || err.Error() != "the caller is gone" {
			t.Errorf("for a caller that is gone: %v", err)
		}
	})
}
