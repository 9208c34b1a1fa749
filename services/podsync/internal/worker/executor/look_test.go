package executor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// What was brought up is seen before anything is decided again, or it would be brought up twice.
func TestLooksUntilAllIsSeen(t *testing.T) {
	start := plan.Action{Kind: plan.StartContainer, Container: "app", SandboxID: "s1", ID: "early"}
	created := sandboxed(topic.Container{ID: "early", Name: "app", SandboxID: "s1", State: topic.ContainerCreated})
	running := sandboxed(topic.Container{ID: "early", Name: "app", SandboxID: "s1", State: topic.ContainerRunning})
	for name, c := range map[string]struct {
		action plan.Action
		until  time.Duration // when the runtime can be read again
		stop   time.Duration // when the pod must stop; zero for never
		took   time.Duration // at least
		most   time.Duration
		seen   bool
	}{
		"a start": {
			action: start, until: time.Minute, took: time.Minute,
			most: time.Minute + lookAgainMax, seen: true,
		},
		"a start of a pod that stops": {action: start, until: time.Minute, stop: time.Second, most: time.Second},
		"what brings nothing up":      {action: plan.Action{Kind: plan.StopSandbox, ID: "s1"}, until: time.Minute},
		"a runtime that can be read":  {action: start, seen: true},
		"what is damaged for good": {
			action: plan.Action{Kind: plan.ReadPod}, until: time.Hour, took: readPodTimeout,
			most: readPodTimeout,
		},
		"a start that is read at last": {
			action: start, until: 100 * time.Millisecond, took: 100 * time.Millisecond,
			most: lookAgainFirst, seen: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				tries := 0
				observe := func(context.Context, string, *topic.PodObservation) (topic.PodObservation, error) {
					if tries++; time.Since(began) >= c.until {
						return running, nil
					} else if tries%2 == 0 {
						return topic.PodObservation{}, errors.New("no list")
					}
					return topic.PodObservation{Errors: []string{"container app: no such call"}}, nil
				}
				a, _ := newExecutor(t, &busyRuntime{}, func(d *Deps) { d.Runtime.Observe = observe })
				ctx := t.Context()
				if c.stop > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.stop)
					defer cancel()
				}
				out := a.Do(ctx, worker.Snapshot{Pod: hooked(), Obs: created}, c.action)
				if took := time.Since(began); took < c.took || took > c.most {
					t.Errorf("took %v; want %v to %v", took, c.took, c.most)
				}
				if seen := out.Obs != nil && len(out.Obs.Errors) == 0; seen != c.seen {
					t.Errorf("seen %v; want %t", out.Obs, c.seen)
				}
			})
		})
	}
}
