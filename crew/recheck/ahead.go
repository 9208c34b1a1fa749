package recheck

import (
	"slices"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync"
)

// patience is how long an action may be planned before it is begun.
const patience = 5 * time.Second

// mostMoments bounds how often the plan of one pod is made.
const mostMoments = 20_000

// awaited are the steps that are done one by one.
var awaited = []podsync.ActionKind{podsync.ActionCreateSandbox, podsync.ActionStartContainer}

// checkAhead looks for actions that this version plans and that weren't done.
func (c planCheck) checkAhead(plans *Core, w *worker) {
	if len(w.updates) == 0 {
		return
	}
	queue := c.planTimes(w)
	known := map[time.Time]bool{}
	told := map[string]time.Time{}
	for n := 0; len(queue) > 0 && n < mostMoments; n++ {
		t := queue[0]
		queue = queue[1:]
		if later := t.Add(patience); known[t] || later.After(c.last) || c.inAway(t) || c.inAway(later) {
			continue
		}
		known[t] = true
		now, ok := c.planFree(w, t)
		if !ok {
			continue
		}
		if wake := now.WakeAt.Add(time.Millisecond); now.WakeAt.After(t) && wake.Before(c.last) {
			queue = append(queue, wake)
		}
		for _, a := range now.Actions {
			if !c.missing(w, a, t) {
				continue
			}
			key := a.Key()
			if at, ok := told[key]; ok && !w.begunBetween(a, at, t) {
				continue
			}
			told[key] = t
			c.differs(plans, Difference{
				At: t, Object: objectOf(w.pod, a.Container), Recorded: "nothing for " + patience.String(), Now: string(a.Kind),
			})
		}
	}
}

// planTimes are when something changed that a plan knows, and from when on a step no longer counts as what was planned.
func (c planCheck) planTimes(w *worker) []time.Time {
	times := w.times(c.first, c.last)
	for _, s := range w.steps {
		if settles := s.end.Add(past + time.Millisecond); !s.open() && settles.Before(c.last) {
			times = append(times, settles)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// planAt is the plan with what is recorded of a time. It isn't ok where the pod isn't there, or podsync knew more.
func (c planCheck) planAt(w *worker, t time.Time) (podsync.Plan, bool) {
	u, ok := w.updates.last(t)
	if !ok || u.Pod == nil || u.Lifecycle == topic.Terminated && u.Released {
		return podsync.Plan{}, false
	}
	return c.cores.Plan(wish(u), w.runtime.at(t, true), w.facts(u, t, false), t), true
}

// planFree is planAt where podsync was free to act. It isn't ok while a step was under way that others wait for: the
// runtime dates a sandbox from the beginning of its creation, but nothing follows from it before the end.
func (c planCheck) planFree(w *worker, t time.Time) (podsync.Plan, bool) {
	if slices.ContainsFunc(w.steps, func(s step) bool { return slices.Contains(awaited, s.kind()) && s.covers(t) }) {
		return podsync.Plan{}, false
	}
	return c.planAt(w, t)
}

// missing reports whether an action is planned at a time and for a while after, and nothing of the kind was done.
func (c planCheck) missing(w *worker, a podsync.PlanAction, t time.Time) bool {
	if !slices.Contains(planned, a.Kind) || a.Kind == podsync.ActionRemoveContainer || c.unknown(w, a, t) ||
		w.begunBetween(a, t.Add(-past), t.Add(patience)) {
		return false
	}
	later, ok := c.planFree(w, t.Add(patience))
	return ok && slices.ContainsFunc(later.Actions, func(b podsync.PlanAction) bool { return b.Key() == a.Key() })
}

// unknown reports whether the recording doesn't say enough about whether the action was due.
func (c planCheck) unknown(w *worker, a podsync.PlanAction, t time.Time) bool {
	switch a.Kind {
	case podsync.ActionCreateSandbox:
		runtime, ok := c.runtime.last(t)
		return ok && runtime.Reachable && !runtime.NetworkReady.Status || !w.born() && len(w.seen) == 0
	case podsync.ActionEnsureImage, podsync.ActionStartContainer:
		_, known := w.image(a.Container, "", t)
		return !known
	case podsync.ActionStopSandbox:
		return !w.born()
	}
	return len(w.seen) == 0
}

// begunBetween reports whether a step of the kind was begun or under way in a period.
func (w *worker) begunBetween(a podsync.PlanAction, from, to time.Time) bool {
	return slices.ContainsFunc(w.steps, func(s step) bool {
		return s.kind() == a.Kind && s.Container == a.Container && !s.begin.After(to) && (s.open() || !s.end.Before(from))
	})
}
