package recheck

import (
	"slices"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync"
)

// checkEnds judges when a pod began to end by itself, and when nothing of it ran any more.
func (c planCheck) checkEnds(plans *Core, w *worker) {
	before := topic.Syncing
	for _, e := range w.updates {
		u := e.value
		if e.gone || u.Lifecycle == before {
			continue
		}
		if e.retained || c.inAway(e.at) {
			before = u.Lifecycle
			continue
		}
		if before == topic.Syncing && !c.told(w.pod, u, e.at) {
			c.judgeEnd(plans, w, e, "the pod begins to end", func(p podsync.Plan) bool { return p.Complete })
		}
		if u.Lifecycle == topic.Terminated {
			c.judgeEnd(plans, w, e, "the pod has terminated", func(p podsync.Plan) bool { return p.Released })
		}
		before = u.Lifecycle
	}
	c.checkRunsOn(plans, w)
}

// told reports whether somebody has told the pod to end, and not its plan.
func (c planCheck) told(p *pod, u topic.Pod, at time.Time) bool {
	if u.Pod == nil || u.Pod.DeletionTimestamp != nil || u.Pod.Spec.ActiveDeadlineSeconds != nil {
		return true
	}
	// An eviction, a refusal or a shutdown gives the status a reason. A phase that the API server has is final.
	for _, s := range p.patches.during(at.Add(-past), at.Add(soon)) {
		if s.Status.Reason != "" {
			return true
		}
	}
	for _, o := range p.objects.during(at.Add(-past), at) {
		if o.Status.Phase == "Failed" || o.Status.Phase == "Succeeded" {
			return true
		}
	}
	// A pod that isn't wanted any more is removed.
	for _, s := range c.sources.during(at.Add(-past), at.Add(soon)) {
		if s.Ready && !slices.Contains(s.Pods, p.uid) {
			return true
		}
	}
	return len(c.sources) == 0 && u.Static()
}

// judgeEnd judges a change of the pod's life that follows from what a plan says of the pod.
func (c planCheck) judgeEnd(plans *Core, w *worker, e entry[topic.Pod], what string, says func(podsync.Plan) bool) {
	var last podsync.Plan
	u := e.value
	for _, end := range []bool{u.Lifecycle == topic.Terminated, false} {
		of := wish(u)
		of.Stop = of.Stop && end
		for _, t := range append(w.times(e.at.Add(-past), e.at.Add(soon)), e.at) {
			for _, late := range []bool{false, true} {
				last = c.cores.Plan(of, w.runtime.at(t, late), w.facts(u, t, false), e.at)
				if says(last) {
					plans.Same++
					return
				}
			}
		}
	}
	if !w.born() && len(w.seen) == 0 {
		plans.Unjudged["what the runtime had isn't in the recording"]++
		return
	}
	c.differsUnlessCut(plans, Difference{At: e.at, Object: w.String(), Recorded: what, Now: describe(last, "")})
}

// checkRunsOn looks for a pod that is complete for this version, and was kept up.
func (c planCheck) checkRunsOn(plans *Core, w *worker) {
	for _, t := range w.times(c.first, c.last) {
		later := t.Add(patience)
		if later.After(c.last) || c.inAway(t) || c.inAway(later) || !c.runsOn(w, t) || !c.runsOn(w, later) {
			continue
		}
		c.differs(plans, Difference{
			At: t, Object: w.String(), Recorded: "the pod is kept up for " + patience.String(), Now: "the pod is complete",
		})
		return
	}
}

// runsOn reports whether the pod was up, and this version says that it is complete.
func (c planCheck) runsOn(w *worker, t time.Time) bool {
	u, ok := w.updates.last(t)
	if !ok || u.Pod == nil || u.Lifecycle != topic.Syncing {
		return false
	}
	now, ok := c.planAt(w, t)
	return ok && now.Complete
}
