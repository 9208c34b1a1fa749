package act

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/worker"
)

// A hook that is broken off, since the pod is deleted within a shorter time, is run again: it hasn't failed.
func TestAHookThatIsBrokenOffHasNotFailed(t *testing.T) {
	for name, c := range map[string]struct {
		shortened time.Duration
		fails     bool
	}{"broken off": {time.Second, false}, "too slow": {0, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, told := newActor(t, &busyRuntime{}, nil)
				pod := hooked()
				pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 60}}}
				ctx := t.Context()
				if c.shortened > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeoutCause(ctx, c.shortened, errors.New("the grace period was shortened"))
					defer cancel()
				}
				a.Do(ctx, worker.Snapshot{Pod: pod}, plan.Action{Kind: plan.RunPreStop, Container: "app", ID: "x", Grace: 30 * time.Second})
				if fails := slices.Contains(told.list, "Warning FailedPreStopHook"); fails != c.fails {
					t.Errorf("events %v", told.list)
				}
			})
		})
	}
}
