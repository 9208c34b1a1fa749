package worker

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/podstatus"
)

// triggers begins the pod's end where something asks for it, and shortens its grace period, which never grows.
func (w *Worker) triggers(now time.Time) {
	switch {
	case podstatus.Terminal(w.Previous.Phase) && w.stop == nil:
		w.beginStop(&stop{since: now, grace: plan.PodGrace(w.Pod), killing: "Stopping container", reason: w.Previous.Reason, message: w.Previous.Message})
	case w.Reject != nil && w.stop == nil:
		w.beginStop(&stop{since: now, fail: true, reason: w.Reject.Reason, message: w.Reject.Message})
	case w.Pod.DeletionTimestamp != nil || w.removed:
		grace := plan.PodGrace(w.Pod)
		if s := w.Pod.DeletionGracePeriodSeconds; s != nil {
			grace = time.Duration(*s) * time.Second
		}
		w.beginStop(&stop{since: now, grace: grace, killing: "Stopping container"})
	case w.deadlinePassed(now) && w.stop == nil:
		w.beginStop(&stop{
			since: now, grace: plan.PodGrace(w.Pod), killing: "Stopping container", fail: true,
			reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline",
		})
		w.report.Event(w.Pod, "", corev1.EventTypeNormal, "DeadlineExceeded", w.stop.message)
	}
}

func (w *Worker) evict(e Eviction) {
	if w.lifecycle == topic.Terminated || podstatus.Terminal(w.status.Phase) {
		return // it has ended by itself
	}
	failing := w.stop != nil && w.stop.fail
	grace := plan.PodGrace(w.Pod)
	if e.Grace > 0 {
		grace = min(grace, e.Grace)
	}
	w.beginStop(&stop{since: time.Now(), grace: grace, killing: "Stopping container"})
	w.hurry()
	if failing {
		return // the first reason stays
	}
	w.stop.fail, w.stop.reason, w.stop.message = true, e.Reason, e.Message
	w.stop.disruption, w.stop.disruptionMessage = e.Disruption, cmp.Or(e.DisruptionMessage, e.Message)
}

func (w *Worker) beginStop(s *stop) {
	switch {
	case w.stop == nil:
		w.stop = s
		s.rank = w.nextRank()
	case s.grace >= w.stop.grace:
		return
	default:
		// It counts from now on, and can't reach beyond the end that was promised before.
		if end := s.since.Add(s.grace); end.Before(w.stop.since.Add(w.stop.grace)) {
			w.stop.since = s.since
		} else {
			w.stop.since = w.stop.since.Add(w.stop.grace - s.grace)
		}
		w.stop.grace = s.grace
	}
	// Those too of a container that is stopped for a reason of its own, as after a failed probe.
	for _, f := range w.flight {
		if (f.action.Kind == plan.StopContainer || f.action.Kind == plan.RunPreStop) && f.action.Grace > s.grace {
			f.cancel(errShorter)
		}
	}
}

// deadline is when activeDeadlineSeconds ends the pod; zero if never.
func (w *Worker) deadline() time.Time {
	if s := w.Pod.Spec.ActiveDeadlineSeconds; s != nil {
		return w.start.Add(time.Duration(*s) * time.Second)
	}
	return time.Time{}
}

func (w *Worker) deadlinePassed(now time.Time) bool {
	d := w.deadline()
	return !d.IsZero() && !now.Before(d)
}

func (w *Worker) cancelStarts() {
	for _, f := range w.flight {
		if f.action.Starts() {
			f.cancel(errStopping)
		}
	}
}

func (w *Worker) startsInFlight() bool {
	for _, f := range w.flight {
		if f.action.Starts() {
			return true
		}
	}
	return false
}

// afterStop goes on when no container runs: report it, wait for the volumes, release the cgroup, and when
// the pod is to go, remove its sandboxes.
func (w *Worker) afterStop(ctx context.Context, p plan.Plan) {
	if w.lifecycle != topic.Terminated {
		w.lifecycle, w.endedAt = topic.Terminated, time.Now()
	}
	w.ended.Store(true)
	w.over.Store(true)
	if !p.Released {
		return
	}
	if w.volumes.Phase != topic.VolumeUnmounted && len(w.Pod.Spec.Volumes) > 0 {
		return
	}
	if time.Now().Before(w.messagesDue()) {
		return // what is read goes with the pod's directory
	}
	if !w.released {
		w.begin(ctx, plan.Action{Kind: plan.ReleaseNode})
		return
	}
	if w.removed {
		w.begin(ctx, plan.Action{Kind: plan.RemoveSandboxes})
	}
}
