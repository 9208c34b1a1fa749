package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

// A hook that is broken off, since the pod is deleted within a shorter time, is run again: it hasn't failed.
func TestAHookThatIsBrokenOffHasNotFailed(t *testing.T) {
	for name, c := range map[string]struct {
		shortened time.Duration
		fails     bool
	}{"broken off": {time.Second, false}, "too slow": {0, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, told := newExecutor(t, &busyRuntime{})
				pod := hooked()
				pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
					Sleep: &corev1.SleepAction{Seconds: 60},
				}}
				ctx := t.Context()
				if c.shortened > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeoutCause(ctx, c.shortened, errors.New("the grace period was shortened"))
					defer cancel()
				}
				a.Do(ctx, worker.Snapshot{Pod: pod}, plan.Action{
					Kind: plan.RunPreStop, Container: "app", ID: "x",
					Grace: 30 * time.Second,
				})
				if fails := slices.Contains(told.list, "Warning FailedPreStopHook"); fails != c.fails {
					t.Errorf("events %v", told.list)
				}
			})
		})
	}
}

// The hook of a sidecar isn't ended by the end of the grace period, when its container gets its SIGTERM, but with it.
func TestAHookGoesOnWhileItsContainerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newExecutor(t, &busyRuntime{})
		pod := hooked()
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Sleep: &corev1.SleepAction{Seconds: 60},
		}}
		began := time.Now()
		a.Do(t.Context(), worker.Snapshot{Pod: pod}, plan.Action{
			Kind: plan.RunPreStop, Container: "app", ID: "x", Grace: 30 * time.Second,
		})
		if took := time.Since(began); took != 32*time.Second {
			t.Errorf("the hook was ended after %s, want the grace period and 2 s", took)
		}
	})
}

// stopper ends containers and sandboxes after a while, and keeps when each call began, and the grace period it was
// given.
type stopper struct {
	Containers
	Sandboxes
	takes map[string]time.Duration // by ID; else 100 ms

	mu    sync.Mutex
	began map[string]time.Time
	grace map[string]time.Duration
}

func (r *stopper) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	r.mu.Lock()
	r.began[id], r.grace[id] = time.Now(), grace
	r.mu.Unlock()
	return r.wait(ctx, id)
}

func (r *stopper) StopPodSandbox(ctx context.Context, id string) error {
	r.mu.Lock()
	r.began[id] = time.Now()
	r.mu.Unlock()
	return r.wait(ctx, id)
}

func (r *stopper) wait(ctx context.Context, id string) error {
	takes, slow := r.takes[id]
	if !slow {
		takes = 100 * time.Millisecond
	}
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stopAll stops one container for each turn, all at once, and answers when each call began.
func stopAll(t *testing.T, r *stopper, turns map[string]slots.Turn) map[string]time.Duration {
	t.Helper()
	a, _ := newExecutor(t, &busyRuntime{}, func(d *Deps) { d.Runtime.Containers, d.Runtime.Sandboxes = r, r })
	r.began, r.grace = map[string]time.Time{}, map[string]time.Duration{}
	begin := time.Now()
	var done sync.WaitGroup
	inOrder := slices.SortedFunc(maps.Keys(turns), func(a, b string) int {
		return cmp.Compare(turns[a].Rank, turns[b].Rank)
	})
	for _, id := range inOrder {
		turn := turns[id]
		done.Go(func() {
			pod := hooked()
			pod.Spec.Containers[0].Lifecycle = nil
			a.Do(t.Context(), worker.Snapshot{Pod: pod, Turn: turn}, plan.Action{
				Kind: plan.StopContainer, Container: "app",
				ID: id, Grace: 30 * time.Second,
			})
		})
		synctest.Wait()
	}
	done.Wait()
	after := map[string]time.Duration{}
	for id, at := range r.began {
		after[id] = at.Sub(begin)
	}
	return after
}

// A container that takes its grace period, or a runtime that hangs on it, keeps no other from its SIGTERM, and those
// that waited have their whole grace period.
func TestAStopThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &stopper{takes: map[string]time.Duration{"hung": time.Hour}}
		turns := map[string]slots.Turn{"hung": {}}
		for i := range 20 {
			turns[fmt.Sprint("c", i)] = slots.Turn{Rank: uint64(i + 1)}
		}
		for id, after := range stopAll(t, r, turns) {
			if after > 6*time.Second {
				t.Errorf("container %s had its SIGTERM after %s", id, after)
			}
			if r.grace[id] != 30*time.Second {
				t.Errorf("container %s has %s to end, want the 30 s that it was promised", id, r.grace[id])
			}
		}
	})
}

func TestAnEvictionGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := make(chan struct{})
		close(now)
		turns := map[string]slots.Turn{"evicted": {Rank: 99, Urgent: now}}
		for i := range 20 {
			turns[fmt.Sprint("c", i)] = slots.Turn{Rank: uint64(i)}
		}
		after := stopAll(t, &stopper{}, turns)
		if after["evicted"] != 0 || after["c19"] < time.Second {
			t.Errorf(
				"the evicted pod was stopped after %s, the last one after %s; want it at once, and the others one after the other",
				after["evicted"], after["c19"])
		}
	})
}

// A preStop hook that takes its time needs no core: it runs before the pod's turn, and those of many pods side by side.
func TestAHookWaitsForNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &stopper{began: map[string]time.Time{}, grace: map[string]time.Duration{}}
		a, _ := newExecutor(t, &busyRuntime{}, func(d *Deps) { d.Runtime.Containers = r })
		begin := time.Now()
		var done sync.WaitGroup
		for i := range 10 {
			done.Go(func() {
				pod := hooked()
				pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
					Sleep: &corev1.SleepAction{Seconds: 10},
				}}
				action := plan.Action{Kind: plan.StopContainer, Container: "app", ID: fmt.Sprint("c", i), Grace: 30 * time.Second}
				a.Do(t.Context(), worker.Snapshot{Pod: pod, Turn: slots.Turn{Rank: uint64(i)}}, action)
			})
		}
		done.Wait()
		if took := time.Since(begin); took != 11*time.Second {
			t.Errorf("ten hooks of 10 s and ten stops of 100 ms took %s, want 11s", took)
		}
		for id, grace := range r.grace {
			if grace != 20*time.Second {
				t.Errorf("after its hook container %s has %s, want what the hook has left", id, grace)
			}
		}
	})
}
