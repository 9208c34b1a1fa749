package executor

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

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// A hook is a step of its own within the stop or the start of its container: who waits for it sees since when it runs,
// and how it ended.
func TestHooksAreSteps(t *testing.T) {
	sleeps := func(seconds int64) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}
	}
	bad := &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{}}
	for name, c := range map[string]struct {
		hooks  corev1.Lifecycle
		action plan.Action
		within time.Duration
		want   []string
	}{
		"stop": {
			hooks: corev1.Lifecycle{PreStop: sleeps(20)}, action: plan.Action{Kind: plan.StopContainer},
			want: []string{
				"run preStop hook begin 0s", "run preStop hook end 20s", "stop container begin 0s", "stop container end 20.1s",
			},
		},
		"stop with a quick hook": {
			hooks: corev1.Lifecycle{PreStop: sleeps(0)}, action: plan.Action{Kind: plan.StopContainer},
			want: []string{"run preStop hook end 0s", "stop container end 100ms"},
		},
		"stop without a hook": {
			action: plan.Action{Kind: plan.StopContainer}, want: []string{"stop container end 100ms"},
		},
		"stop after its hook": {
			hooks:  corev1.Lifecycle{PreStop: sleeps(20)},
			action: plan.Action{Kind: plan.StopContainer, HookRan: true}, want: []string{"stop container end 100ms"},
		},
		"stop with a hook that fails": {
			hooks: corev1.Lifecycle{PreStop: bad}, action: plan.Action{Kind: plan.StopContainer},
			want: []string{"run preStop hook end 0s: cannot run handler", "stop container end 100ms"},
		},
		"stop that is broken off": {
			hooks: corev1.Lifecycle{PreStop: sleeps(20)}, action: plan.Action{Kind: plan.StopContainer},
			within: 5 * time.Second,
			want: []string{
				"run preStop hook begin 0s", "run preStop hook end 5s: podsync stops", "stop container begin 0s",
				"stop container end 5s: podsync stops",
			},
		},
		"start": {
			hooks:  corev1.Lifecycle{PostStart: sleeps(20)},
			action: plan.Action{Kind: plan.StartContainer, SandboxID: "s1"},
			want: []string{
				"run postStart hook begin 0s", "run postStart hook end 20s", "start container begin 0s",
				"start container end 20s",
			},
		},
		"start with a hook that fails": {
			hooks:  corev1.Lifecycle{PostStart: bad},
			action: plan.Action{Kind: plan.StartContainer, SandboxID: "s1"},
			want:   []string{"run postStart hook end 0s: cannot run handler", "start container end 100ms: cannot run handler"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := hooked()
				pod.Spec.Containers[0].Lifecycle = &c.hooks
				c.action.Container, c.action.Grace = "app", 30*time.Second
				if c.action.Kind == plan.StopContainer {
					c.action.ID = "c1"
				}
				got := stepsOf(t, pod, c.action, c.within)
				if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
					t.Errorf("steps\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
				}
			})
		})
	}
}

// quickRuntime stops a container within 100 ms.
type quickRuntime struct{ *busyRuntime }

func (quickRuntime) StopContainer(ctx context.Context, _ string, _ time.Duration) error {
	select {
	case <-time.After(100 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stepsOf are the steps that the bus is told of while the action is done, in the order of their names.
func stepsOf(t *testing.T, pod *corev1.Pod, action plan.Action, within time.Duration) []string {
	t.Helper()
	b := bustest.New()
	conn, reader := b.Conn("podsync"), b.Conn("cli")
	defer conn.Close()
	defer reader.Close()
	following, stop := context.WithCancel(t.Context())
	defer stop()
	var got []string
	steps := topic.PodStep.Subscribe(following, reader, bus.From{})
	go func() {
		for s := range steps {
			line := fmt.Sprintf("%s %s %s", s.Value.Name, s.Value.Phase, s.Value.Duration)
			if s.Value.Error != "" {
				line += ": " + s.Value.Error
			}
			got = append(got, line)
		}
	}()
	synctest.Wait()
	r := &busyRuntime{}
	e, _ := newExecutor(t, r, func(d *Deps) {
		d.Runtime.Containers = quickRuntime{r}
		d.Reports.Events = events.New(conn, &recorded{}, 0, "", slog.New(slog.DiscardHandler))
	})
	ctx := t.Context()
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, within, errors.New("podsync stops"))
		defer cancel()
	}
	e.Do(ctx, worker.Snapshot{Pod: pod, Obs: sandboxed()}, action)
	synctest.Wait()
	slices.Sort(got)
	return got
}
