package worker

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/podstatus"
)

// stopping is the message of the Killing event where there is no particular reason.
const stopping = "Stopping container"

// ending is how far the pod's end is.
type ending struct {
	stop      *stop           // why and how it ends; nil as long as it doesn't
	removed   bool            // no source wants it any more
	urgent    chan struct{}   // closed once the node needs the pod's end
	leaving   uint64          // the rank of the removal of what is left; zero before it was due
	lifecycle topic.Lifecycle // as stated
	at        time.Time       // when no container ran any more
	released  bool            // what it held on the node is given back
	gone      bool            // nothing is left of it
}

func newEnding() ending { return ending{urgent: make(chan struct{}), lifecycle: topic.Syncing} }

// stop is why and how the pod ends.
type stop struct {
	since   time.Time
	grace   time.Duration
	killing string // message of the Killing event
	fail    bool
	reason  string
	message string
	// disruption and disruptionMessage are those of the DisruptionTarget condition; empty for none.
	disruption, disruptionMessage string
	// rank is the place of this end among those of other pods.
	rank uint64
}

// Eviction is why the node ends a pod.
type Eviction struct {
	// Reason and Message are the pod's in its Failed status.
	Reason  string
	Message string
	// Disruption is the reason of the DisruptionTarget condition (KEP-3329), DisruptionMessage its message; an empty
	// one is Message.
	Disruption, DisruptionMessage string
	// Grace bounds the pod's own grace period; zero leaves it.
	Grace time.Duration
}

// begin begins the end, or shortens its grace period, which never grows. It reports whether it did either.
func (e *ending) begin(s *stop, rank func() uint64) bool {
	switch {
	case e.stop == nil:
		e.stop = s
		s.rank = rank()
	case s.grace >= e.stop.grace:
		return false
	default:
		// It counts from now on, and can't reach beyond the end that was promised before.
		if end := s.since.Add(s.grace); end.Before(e.stop.since.Add(e.stop.grace)) {
			e.stop.since = s.since
		} else {
			e.stop.since = e.stop.since.Add(e.stop.grace - s.grace)
		}
		e.stop.grace = s.grace
	}
	return true
}

// halted takes note that no container runs any more. The pod has terminated when its sandboxes are stopped too: they
// may have its devices and volumes until then, as a network namespace or a virtual machine has.
func (e *ending) halted(sandboxes bool) {
	if e.at.IsZero() {
		e.at = time.Now()
	}
	if sandboxes {
		e.lifecycle = topic.Terminated
	}
}

// hurry lets the pod's actions go before those of all other pods, including the actions that are waiting now.
func (e *ending) hurry() {
	select {
	case <-e.urgent:
	default:
		close(e.urgent)
	}
}

// due is the end that something asks for now; nil if nothing does.
func (s *state) due(now time.Time) *stop {
	switch {
	case podstatus.Terminal(s.Previous.Phase) && s.ending.stop == nil:
		return &stop{
			since: now, grace: plan.PodGrace(s.Pod), killing: stopping, reason: s.Previous.Reason,
			message: s.Previous.Message,
		}
	case s.Reject != nil && s.ending.stop == nil:
		return &stop{since: now, fail: true, reason: s.Reject.Reason, message: s.Reject.Message}
	case s.Pod.DeletionTimestamp != nil || s.ending.removed:
		grace := plan.PodGrace(s.Pod)
		if seconds := s.Pod.DeletionGracePeriodSeconds; seconds != nil {
			grace = time.Duration(*seconds) * time.Second
		}
		return &stop{since: now, grace: grace, killing: stopping}
	}
	return nil
}

// triggers begins the pod's end where something asks for it, and shortens its grace period.
func (w *Worker) triggers(now time.Time) {
	refuse(w)
	if s := w.state.due(now); s != nil {
		w.beginStop(s)
		return
	}
	if d := w.state.deadline(); d.IsZero() || now.Before(d) {
		return
	}
	w.beginStop(&stop{
		since: now, grace: plan.PodGrace(w.state.Pod), killing: stopping, fail: true,
		reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline",
	})
	w.report.Event(w.state.Pod, "", corev1.EventTypeNormal, "DeadlineExceeded", w.state.ending.stop.message)
}

func (w *Worker) evict(e Eviction) {
	if !w.state.ending.at.IsZero() {
		return // it has ended by itself
	}
	failing := w.state.ending.stop != nil && w.state.ending.stop.fail
	grace := plan.PodGrace(w.state.Pod)
	if e.Grace > 0 {
		grace = min(grace, e.Grace)
	}
	w.beginStop(&stop{since: time.Now(), grace: grace, killing: stopping})
	w.state.ending.hurry()
	if failing || podstatus.Terminal(w.publisher.computed.Phase) {
		return // the first reason stays, or it has ended by itself
	}
	end := w.state.ending.stop
	end.fail, end.reason, end.message = true, e.Reason, e.Message
	end.disruption, end.disruptionMessage = e.Disruption, cmp.Or(e.DisruptionMessage, e.Message)
}

func (w *Worker) beginStop(s *stop) {
	if !w.state.ending.begin(s, w.state.nextRank) {
		return
	}
	// This includes the stop of a container for a reason of its own, as after a failed probe.
	w.actions.cancel(errShorter, func(f *inflightAction) bool {
		return (f.action.Kind == plan.StopContainer || f.action.Kind == plan.RunPreStop) && f.action.Grace > s.grace
	})
}

// release takes in how the release of what the pod held on the node has ended.
func release(w *Worker, err error) {
	w.state.ending.released = err == nil
	if err == nil && w.state.Released != nil {
		w.state.Released()
	}
}

// nextOfEnd is what must be done when the pod has terminated: wait for the volumes, release the cgroup, and when the
// pod is to go, remove its sandboxes.
func (s *state) nextOfEnd() (a plan.Action, due bool) {
	switch {
	case s.ending.lifecycle != topic.Terminated, s.holdsClaims(),
		s.volumes.Phase != topic.VolumeUnmounted && len(s.Pod.Spec.Volumes) > 0:
		return a, false
	case time.Now().Before(s.containers.messagesDue()):
		return a, false // what is read goes with the pod's directory
	case !s.ending.released:
		return plan.Action{Kind: plan.ReleaseNode}, true
	}
	return plan.Action{Kind: plan.RemoveSandboxes}, s.ending.removed
}
