package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// errGone is why a worker that has ended answers nothing.
var errGone = errors.New("the pod has just gone, or podsync stops")

// Retry ends the back-offs of the pod at once, or those of one container, and returns them. What failed is tried again
// as if for the first time, so that a next failure has the shortest back-off. It may be called from any goroutine.
func (w *Worker) Retry(ctx context.Context, container string) ([]topic.Backoff, error) {
	answer := make(chan []topic.Backoff, 1)
	select {
	case w.in <- func(w *Worker) { answer <- w.retry(container, time.Now()) }:
	case <-w.done:
		return nil, errGone
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case ended := <-answer:
		return ended, nil
	case <-w.done: // it drops what it is given while it ends
		return nil, errGone
	}
}

// retry ends the back-offs of the container, or all where none is named.
func (w *Worker) retry(container string, now time.Time) []topic.Backoff {
	var ended []topic.Backoff
	p := w.state.plan(w.actions.failures, now)
	for name, waiting := range p.Waiting {
		if waiting.Reason == plan.ReasonCrashLoopBackOff && (container == "" || container == name) {
			w.state.containers.of(name).beginBackoff(restarts(w.state.view.obs, name))
			ended = append(ended, topic.Backoff{
				Container: name, Reason: waiting.Reason, Message: waiting.Message, Until: waiting.Until,
			})
		}
	}
	for key, failure := range w.actions.failures {
		if container != "" && container != key || !failure.RetryAt.After(now) {
			continue
		}
		b := topic.Backoff{Reason: failure.Reason, Message: failure.Message, Until: failure.RetryAt}
		if plan.Container(w.state.Pod, key) != nil {
			b.Container = key
		}
		if failure.Of == plan.EnsureImage {
			w.state.containers.of(key).anew = true
		}
		w.actions.forget(key, failure.Of)
		ended = append(ended, b)
	}
	slices.SortFunc(ended, func(a, b topic.Backoff) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Reason, b.Reason))
	})
	return ended
}

// restarts is the restart count of the container's newest run.
func restarts(obs topic.PodObservation, name string) int {
	for i := range obs.Containers {
		if obs.Containers[i].Name == name {
			return obs.Containers[i].RestartCount
		}
	}
	return 0
}

// forget drops a failure, and how often there was one in a row.
func (a *actions) forget(key string, of plan.Kind) {
	delete(a.failures, key)
	if start := (plan.Action{Kind: of, Container: key}); start.Starts() {
		delete(a.tries, start.Key())
		return
	}
	delete(a.tries, key)
}

// takeAnew reports, once, whether a person has asked for the action's image, which ends the back-off of its pull.
func (s *state) takeAnew(a plan.Action) bool {
	c := s.containers[a.Container]
	if a.Kind != plan.EnsureImage || c == nil || !c.anew {
		return false
	}
	c.anew = false
	return true
}
