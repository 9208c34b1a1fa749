package worker

import (
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/slots"
)

// perFailure is added to a deed's rank for each of its failures, which puts it behind those of all pods that haven't failed.
const perFailure = uint64(1) << 32

// turn is the deed's place among those that wait for a slot. Starts have that of the pod's arrival, stops that of when the
// pod's end began: who is deleted first is gone first. To remove what is left of a pod is due to nobody. It comes after all stops
// that were asked for before.
func (w *Worker) turn(a plan.Action) slots.Turn {
	t := slots.Turn{Rank: w.Rank, Urgent: w.urgent}
	switch {
	case a.Kind == plan.RemoveSandboxes:
		if w.leaving == 0 {
			w.leaving = w.nextRank()
		}
		t.Rank, t.Urgent = w.leaving, nil
	case w.stop != nil:
		t.Rank = w.stop.rank
	}
	t.Rank += perFailure * uint64(w.tries[a.Key()])
	return t
}

func (w *Worker) nextRank() uint64 {
	if w.NextRank == nil {
		return w.Rank
	}
	return w.NextRank()
}

// hurry has the pod's deeds wait for no others any more, those too that wait by now.
func (w *Worker) hurry() {
	select {
	case <-w.urgent:
	default:
		close(w.urgent)
	}
}
