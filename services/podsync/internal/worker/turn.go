package worker

import (
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

// takeTurn gives the action its place among those that wait for a slot. Starts have that of the pod's arrival, stops
// that of when the pod's end began: who is deleted first is gone first. Nobody waits for the removal of what is left of
// a pod: it takes a place behind all stops that were asked for before. What has failed before has a share of its own.
func (s *state) takeTurn(a plan.Action, tries int) slots.Turn {
	t := slots.Turn{Rank: s.Rank, Failed: tries > 0, Urgent: s.ending.urgent}
	switch {
	case a.Kind == plan.RemoveSandboxes:
		if s.ending.leaving == 0 {
			s.ending.leaving = s.nextRank()
		}
		t.Rank, t.Urgent = s.ending.leaving, nil
	case s.ending.stop != nil:
		t.Rank = s.ending.stop.rank
	}
	return t
}

func (s *state) nextRank() uint64 {
	if s.NextRank == nil {
		return s.Rank
	}
	return s.NextRank()
}
