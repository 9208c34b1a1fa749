package recheck

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/status"
)

const (
	// lag is how old the inputs of a merged status may be, which takes its way through two queues.
	lag = 5 * time.Second
	// swapped is how much later than a decision its input may have got into the history, which keeps each topic's order
	// and not that of two topics.
	swapped = time.Second
	// settled is how long nothing must have changed of a pod until its merged status must be up to date.
	settled = 10 * time.Second
)

// checkMerges judges the merged statuses: each that was published, and those that weren't and should have been.
func (c *check) checkMerges() {
	merges := c.core("merge", "a pod's status: podsync's, the probes' verdicts and the API server's copy in one")
	c.eachPod(func(p *pod) {
		for i, e := range p.merged {
			if e.gone || e.retained {
				continue
			}
			c.judgeMerge(merges, p, i)
		}
		c.checkStale(merges, p)
	})
}

// judgeMerge judges one published status.
func (c *check) judgeMerge(merges *Core, p *pod, i int) {
	e := p.merged[i]
	nearest, found := c.nearest(p, e.at, p.merged[:i], e.value.Status)
	switch {
	case !found:
		merges.Unjudged["what it was merged from is from before the recording"]++
	case nearest == nil:
		merges.Same++
	case !p.born() && len(p.objects) == 0 && i == 0:
		merges.Unjudged["the API server's copy is from before the recording"]++
	default:
		c.differsUnlessCut(merges, Difference{
			At: e.at, Object: p.String(), Recorded: changes(*nearest, e.value.Status), Now: changes(e.value.Status, *nearest),
		})
	}
}

// nearest is the merged status that is nearest to a recorded one, by any state of its inputs of the last seconds; nil
// if it is the recorded one. found is false where the recording doesn't have the inputs.
func (c *check) nearest(p *pod, at time.Time, before track[topic.Merged], recorded corev1.PodStatus) (
	nearest *corev1.PodStatus, found bool,
) {
	from, to, least := at.Add(-lag), at.Add(swapped), 0
	bases := c.bases(p, from, at, before)
	for _, u := range slices.Backward(p.updates.during(from, to)) {
		if u.Pod == nil {
			continue
		}
		for _, patch := range slices.Backward(p.patches.during(from, to)) {
			for _, probes := range p.probesDuring(from, to) {
				for _, base := range bases {
					merged := c.cores.Merge(patch, u, probes, base, at)
					found = true
					if alignTimes(merged.Conditions, recorded.Conditions, at); equality.Semantic.DeepEqual(merged, recorded) {
						return nil, true
					}
					if n := len(fieldsThatDiffer(merged, recorded)); nearest == nil || n < least {
						nearest, least = &merged, n
					}
				}
			}
		}
	}
	return nearest, found
}

// bases are the statuses that the API server may have had, by what status knew: what was merged before, what the watch
// has said, or nothing.
func (c *check) bases(p *pod, from, to time.Time, before track[topic.Merged]) []corev1.PodStatus {
	var bases []corev1.PodStatus
	for _, m := range slices.Backward(before.during(from, to)) {
		bases = append(bases, m.Status)
	}
	for _, o := range slices.Backward(p.objects.during(from, to)) {
		bases = append(bases, o.Status)
	}
	name := p.String()
	for _, uid := range slices.Sorted(maps.Keys(c.mirrors)) {
		for _, m := range c.mirrors[uid].during(from, to) {
			if m.Namespace+"/"+m.Name == name {
				bases = append(bases, m.Status)
			}
		}
	}
	return append(bases, corev1.PodStatus{})
}

// probesDuring are the pod's verdicts as they were at any time of a period, the newest first.
func (p *pod) probesDuring(from, to time.Time) []status.Probes {
	moments := []time.Time{from}
	for _, of := range p.probes {
		moments = append(moments, of.times(from, to)...)
	}
	slices.SortFunc(moments, time.Time.Compare)
	var all []status.Probes
	for _, t := range slices.Backward(slices.CompactFunc(moments, time.Time.Equal)) {
		probes := status.Probes{}
		for key, of := range p.probes {
			v, ok := of.last(t)
			if !ok {
				continue
			}
			if probes[key.Container] == nil {
				probes[key.Container] = map[string]topic.Probe{}
			}
			probes[key.Container][key.Kind] = v
		}
		all = append(all, probes)
	}
	return all
}

// alignTimes gives conditions that have just changed the recorded time: the status was made a moment before it was
// stored.
func alignTimes(conditions, recorded []corev1.PodCondition, at time.Time) {
	for i := range conditions {
		for j := range recorded {
			of, was := &conditions[i].LastTransitionTime, recorded[j].LastTransitionTime
			if conditions[i].Type == recorded[j].Type && at.Sub(of.Time).Abs() <= settled && at.Sub(was.Time).Abs() <= settled {
				*of = was
			}
		}
	}
}

// checkStale looks for statuses that rest on inputs that have changed since, for this version.
func (c *check) checkStale(merges *Core, p *pod) {
	for _, t := range p.inputTimes(c.first, c.last) {
		rested := t.Add(settled)
		if rested.After(c.last) || len(p.inputTimes(t.Add(time.Nanosecond), rested)) > 0 {
			continue
		}
		i := p.merged.index(rested)
		if i < 0 || p.merged[i].gone || p.merged[i].at.After(t.Add(lag)) {
			continue
		}
		if _, ok := p.updates.last(rested); !ok {
			continue
		}
		recorded := p.merged[i].value.Status
		nearest, found := c.nearest(p, rested, p.merged[:i+1], recorded)
		if found && nearest != nil && p.known() {
			c.differs(merges, Difference{
				At: rested, Object: p.String(), Recorded: changes(*nearest, recorded), Now: changes(recorded, *nearest),
			})
			return
		}
	}
}

// known reports whether the recording has what the pod's status rests on.
func (p *pod) known() bool { return p.born() || len(p.objects) > 0 }

// inputTimes are when something changed in a period that a pod's status follows from.
func (p *pod) inputTimes(from, to time.Time) []time.Time {
	times := slices.Concat(p.updates.times(from, to), p.patches.times(from, to), p.objects.times(from, to))
	for _, of := range p.probes {
		times = append(times, of.times(from, to)...)
	}
	slices.SortFunc(times, time.Time.Compare)
	return slices.CompactFunc(times, time.Time.Equal)
}
