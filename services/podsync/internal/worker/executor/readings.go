package executor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

const (
	// settlePause is between two tries of a call while the same call of an earlier process may be under way.
	settlePause = 200 * time.Millisecond
	// observeTimeout bounds a reading after an action.
	observeTimeout = 20 * time.Second
	// readPodTimeout is for how long ReadPod looks for a complete reading before it makes do with a partial one.
	readPodTimeout = time.Minute
	// lookAgainFirst and lookAgainMax are the pauses after partial readings, and after ones that failed.
	lookAgainFirst, lookAgainMax = 200 * time.Millisecond, 5 * time.Second
)

// reader reads pods after actions.
type reader struct {
	runtime Runtime
	log     *slog.Logger
}

// settling reports whether calls of an earlier process may be under way.
func (r *reader) settling() bool { return r.runtime.Settling != nil && r.runtime.Settling() }

// look reads the pod after an action; nil if that isn't possible. A patient look goes on until a reading is complete or
// ctx ends: what was brought up and isn't seen would be brought up a second time.
func (r *reader) look(ctx context.Context, s worker.Snapshot, action plan.Action, patient bool) *topic.PodObservation {
	for tries := 1; ; tries++ {
		obs, err := r.observe(ctx, s)
		if err == nil && obs.Complete() {
			return &obs
		}
		if tries == 1 {
			r.log.Warn("can't read a pod from the runtime after a step", "pod", s.Pod.Name, "namespace", s.Pod.Namespace,
				"step", string(action.Kind), "error", unread(obs, err))
		}
		if patient && ctx.Err() == nil {
			if pause.For(ctx, pause.After(tries, lookAgainFirst, lookAgainMax)); ctx.Err() == nil {
				continue
			}
		}
		if err != nil {
			return nil
		}
		return &obs
	}
}

func (r *reader) observe(ctx context.Context, s worker.Snapshot) (topic.PodObservation, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), observeTimeout)
	defer cancel()
	return r.runtime.Observe(ctx, string(s.Pod.UID), &s.Obs)
}

func unread(obs topic.PodObservation, err error) error {
	if err != nil {
		return err
	}
	return errors.New(first(obs.Errors))
}

// settle brings something up. After podsync was killed, the runtime continues with what it was asked for, since the
// supervisor keeps the connection open. The same call fails then: a name is reserved, or a container is being started.
// That is no failure to report. settle repeats the call, and adopts what the earlier call has made once that is found.
// It does so after any error, since runtimes have no common words for these; a lasting error is reported a little
// later.
func (r *reader) settle(ctx context.Context, pod *corev1.Pod, try func(context.Context) error,
	adopt func(topic.PodObservation) (done bool),
) error {
	for {
		err := try(ctx)
		if err == nil || !r.settling() {
			return err
		}
		r.log.Debug("a call failed; the same call of an earlier process may be under way",
			"pod", pod.Name, "namespace", pod.Namespace, "error", err, "retry_in", settlePause)
		if pause.For(ctx, settlePause); ctx.Err() != nil {
			return err
		}
		obs, readErr := r.runtime.Observe(ctx, string(pod.UID), nil)
		if readErr == nil && obs.Complete() && adopt(obs) {
			return nil
		}
	}
}
