package recheck

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync"
)

const (
	// past is how old the inputs of a decision of podsync may be, and soon how much later its own pod.update may say
	// what it had decided by.
	past = 3 * time.Second
	soon = 2 * time.Second
)

// planned are the kinds of actions that a plan decides about alone.
var planned = []podsync.ActionKind{
	podsync.ActionCreateSandbox, podsync.ActionStopSandbox, podsync.ActionEnsureImage, podsync.ActionStartContainer,
	podsync.ActionStopContainer, podsync.ActionRunPreStop, podsync.ActionRemoveContainer, podsync.ActionResizePod,
}

// planCheck is the part of a check that judges what podsync's workers do.
type planCheck struct{ *check }

// checkPlans judges what podsync's workers did, what they didn't do, and when their pods ended.
func (c planCheck) checkPlans() {
	plans := c.core("plan", "what podsync does for a pod: each step, each pause, and when a pod ends")
	c.eachPod(func(p *pod) {
		w := c.worker(p)
		for i := range w.steps {
			c.checkStep(plans, w, i)
		}
		c.checkEnds(plans, w)
		c.checkAhead(plans, w)
	})
}

// worker is the pod's.
func (c *check) worker(p *pod) *worker {
	slices.SortStableFunc(p.steps, func(a, b step) int { return a.begin.Compare(b.begin) })
	return &worker{pod: p, runtime: newRuntime(p), longest: c.longestBackoff(), ends: c.last}
}

// longestBackoff is the node's, or the default.
func (c *check) longestBackoff() time.Duration {
	var of struct {
		Longest string `json:"maxContainerRestartPeriod"`
	}
	data, err := json.Marshal(c.header.Settings["crashLoopBackOff"])
	if err == nil {
		err = json.Unmarshal(data, &of)
	}
	if d, parseErr := time.ParseDuration(of.Longest); err == nil && parseErr == nil && d > 0 {
		return d
	}
	return defaultBackoff
}

// checkStep judges whether a step that was begun follows from a plan. It notes what the plan says of it.
func (c planCheck) checkStep(plans *Core, w *worker, i int) {
	s := &w.steps[i]
	switch {
	case w.within(s):
		return
	case !slices.Contains(planned, s.kind()):
		plans.Unjudged[fmt.Sprintf("%q follows from what only podsync's worker knows", s.Name)]++
		return
	case c.inAway(s.begin):
		plans.Unjudged["podsync was being restarted, and what it knew isn't on the bus"]++
		return
	}
	var at podsync.Plan
	for now := range c.plansAt(w, s.begin) {
		for _, a := range now.Actions {
			if a.Kind == s.kind() && a.Container == s.Container && !w.taken(i, a) {
				s.id, s.again = a.ID, a.Reason
				plans.Same++
				return
			}
		}
		if at.Waiting == nil {
			at = now
		}
	}
	c.notPlanned(plans, w, s, at)
}

// notPlanned judges a step that no plan has; at is the most likely one.
func (c planCheck) notPlanned(plans *Core, w *worker, s *step, at podsync.Plan) {
	switch {
	case at.Waiting == nil:
		plans.Unjudged["the pod isn't in the recording, only a step of it"]++
	case s.kind() == podsync.ActionRemoveContainer:
		plans.Unjudged["a container is removed that a call of an earlier podsync may be starting"]++
	case !w.born() && len(w.runtime.at(s.begin, false).Sandboxes) == 0 && s.kind() != podsync.ActionCreateSandbox:
		plans.Unjudged["what the runtime had is from before the recording"]++
	default:
		c.differsUnlessCut(plans, Difference{
			At: s.begin, Object: objectOf(w.pod, s.Container), Recorded: s.Name, Now: describe(at, s.Container),
		})
	}
}

// within reports whether the step is a part of another one: a hook that is run by the start or the stop of its
// container.
func (w *worker) within(s *step) bool {
	return slices.ContainsFunc(w.steps, func(of step) bool {
		return of.Container == s.Container && of.Name != s.Name && of.covers(s.begin) &&
			(of.kind() == podsync.ActionStartContainer || of.kind() == podsync.ActionStopContainer) &&
			strings.HasSuffix(s.Name, " hook")
	})
}

// taken reports whether another step under way is about the same thing.
func (w *worker) taken(i int, a podsync.PlanAction) bool {
	for j := range w.steps {
		if s := &w.steps[j]; j != i && a.ID != "" && s.kind() == a.Kind && s.id == a.ID && s.covers(w.steps[i].begin) {
			return true
		}
	}
	return false
}

// plansAt are the plans that could be made at a time, the most likely first: with what podsync could know by then, by
// each pod.update that it was about to state or had stated.
func (c planCheck) plansAt(w *worker, now time.Time) func(func(podsync.Plan) bool) {
	moments := w.times(now.Add(-past), now.Add(swapped))
	slices.Reverse(moments)
	moments = append(append([]time.Time{now}, moments...), now.Add(-past))
	updates := w.updates.during(now.Add(-past), now.Add(soon))
	slices.SortStableFunc(updates, func(a, b topic.Pod) int { return cmp.Compare(rank(b), rank(a)) })
	return func(yield func(podsync.Plan) bool) {
		for _, u := range updates {
			if u.Pod == nil {
				continue
			}
			for _, t := range moments {
				for _, n := range []int{0, 1, 2, 3} {
					image, late := n&1 != 0, n&2 != 0
					if !yield(c.cores.Plan(wish(u), w.runtime.at(t, late), w.facts(u, t, image), now)) {
						return
					}
				}
			}
		}
	}
}

// rank is how far a pod's life was.
func rank(u topic.Pod) int {
	return slices.Index([]topic.Lifecycle{topic.Syncing, topic.Terminating, topic.Terminated}, u.Lifecycle)
}

// describe says what a plan has for a container, or for the pod where none is named.
func describe(p podsync.Plan, container string) string {
	var parts []string
	for _, a := range p.Actions {
		if container == "" || a.Container == container || a.Container == "" {
			parts = append(parts, strings.TrimSpace(string(a.Kind)+" "+a.Container))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Waiting)) {
		if wait := p.Waiting[name]; container == "" || name == container {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s waits: %s %s", name, wait.Reason, wait.Message)))
		}
	}
	switch {
	case p.Complete:
		parts = append(parts, "the pod is complete")
	case p.Stopped:
		parts = append(parts, "nothing of the pod runs")
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}

// objectOf names a pod, or a container of it.
func objectOf(p *pod, container string) string {
	if container == "" {
		return p.String()
	}
	return p.String() + " " + container
}
