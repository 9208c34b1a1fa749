package worker

import (
	"time"

	"kubelot.dev/bus/topic"
)

// round is the time in which a worker has something under way without a pause, for one purpose: what comes closest to one
// of the kubelet's syncs of a pod, which has a worker do one thing after the other.
type round struct {
	began     time.Time // zero between rounds
	operation string
}

// beginRound is for a deed that is about to begin: it belongs to the round under way unless the pod is to end now.
func (w *Worker) beginRound() {
	operation := w.operation()
	if w.round.operation == operation || w.stop == nil && !w.round.began.IsZero() {
		return
	}
	w.endRound()
	w.round = round{began: time.Now(), operation: operation}
}

// endRound is for when nothing is under way any more.
func (w *Worker) endRound() {
	if !w.round.began.IsZero() {
		w.Meter.Worked(w.round.operation, time.Since(w.round.began))
		w.round = round{}
	}
}

// operation is what a round that begins now is for, in the words of the kubelet's metric.
func (w *Worker) operation() string {
	switch {
	case w.lifecycle == topic.Terminated:
		return "terminated"
	case w.stop != nil:
		return "kill"
	case len(w.obs.Sandboxes) == 0:
		return "create"
	case w.resize != nil:
		return "update"
	}
	return "sync"
}
