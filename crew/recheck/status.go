package recheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync"
)

// unsaid stands for the reason of a container that waits because something has failed: steps have the error's text
// alone.
const unsaid = "(a failure)"

// checkStatuses judges what podsync computed of its pods: their phases, and the states of their containers.
func (c *check) checkStatuses() {
	statuses := c.core("status", "a pod's phase and its containers' states, as podsync computes them")
	c.eachPod(func(p *pod) {
		w := c.worker(p)
		for i, e := range p.patches {
			if !e.gone && !e.retained {
				c.judgeStatus(statuses, w, i)
			}
		}
	})
}

// judgeStatus judges one status.
func (c *check) judgeStatus(statuses *Core, w *worker, i int) {
	e := w.patches[i]
	if c.inAway(e.at) {
		statuses.Unjudged["podsync was being restarted, and what it knew isn't on the bus"]++
		return
	}
	was, now := "", ""
	for of := range c.statusesAt(w, i) {
		was = summary(e.value.Status, of.failed)
		if of.text = summary(of.status, of.failed); of.text == was {
			statuses.Same++
			return
		}
		if now == "" {
			now = of.text
		}
	}
	switch {
	case now == "":
		statuses.Unjudged["the pod isn't in the recording, only its status"]++
	case !w.born() && !c.sees(w, e.at):
		statuses.Unjudged["what the runtime had is from before the recording"]++
	default:
		c.differsUnlessCut(statuses, Difference{At: e.at, Object: w.String(), Recorded: was, Now: now})
	}
}

// sees reports whether the recording has a reading of the pod from before a time.
func (c *check) sees(w *worker, t time.Time) bool {
	_, ok := w.seen.last(t)
	return ok
}

// computed is a status that this version could compute.
type computed struct {
	status corev1.PodStatus
	failed map[string]podsync.PlanFailure
	text   string
}

// statusesAt are the statuses that could be computed when one was recorded, the most likely first.
func (c *check) statusesAt(w *worker, i int) func(func(computed) bool) {
	recorded, t := w.patches[i].value, w.patches[i].at
	moments := w.times(t.Add(-past), t)
	slices.Reverse(moments)
	moments = append([]time.Time{t}, append(moments, t.Add(-past))...)
	return func(yield func(computed) bool) {
		for _, u := range slices.Backward(w.updates.during(t.Add(-past), t.Add(soon))) {
			for _, previous := range w.previous(i) {
				for _, at := range moments {
					if !yield(c.compute(w, u, moment{at, t, false}, previous, recorded)) ||
						!yield(c.compute(w, u, moment{at, t, true}, previous, recorded)) {
						return
					}
				}
			}
		}
	}
}

// moment is when the inputs were so, and when it was decided; late as in runtime.at.
type moment struct {
	of, now time.Time
	late    bool
}

// previous are the statuses that podsync may have had before one.
func (w *worker) previous(i int) []corev1.PodStatus {
	var all []corev1.PodStatus
	if i > 0 && !w.patches[i-1].gone {
		all = append(all, w.patches[i-1].value.Status)
	}
	if o, ok := w.objects.last(w.patches[i].at); ok {
		all = append(all, o.Status)
	}
	return append(all, corev1.PodStatus{})
}

// compute makes a status. Why the node ends a pod isn't on the bus but in the status itself.
func (c *check) compute(w *worker, u topic.Pod, m moment, previous corev1.PodStatus,
	recorded topic.PodStatus,
) computed {
	facts := w.facts(u, m.of, true)
	seen, of := w.runtime.at(m.of, m.late), wish(u)
	plan := c.cores.Plan(of, seen, facts, m.now)
	in := podsync.StatusInput{
		Pod: u.Pod, Obs: seen, Waiting: plan.Waiting, Busy: map[string]bool{}, Previous: previous,
		Ending: of.Stop, Ended: u.Lifecycle == topic.Terminated,
		Fail: recorded.Status.Reason != "", Reason: recorded.Status.Reason,
		Rejected: recorded.Status.Reason != "" && len(recorded.Status.ContainerStatuses) == 0,
	}
	for name, known := range facts.Containers {
		in.Busy[name] = known.Busy
	}
	return computed{status: c.cores.Status(in), failed: facts.Failures}
}

// summary is what is compared of a status.
func summary(s corev1.PodStatus, failed map[string]podsync.PlanFailure) string {
	parts := []string{string(s.Phase)}
	for _, of := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses) {
		_, fails := failed[of.Name]
		_, pod := failed[""]
		parts = append(parts, fmt.Sprintf("%s %s, %d restarts%s", of.Name, stateOf(of.State, fails || pod), of.RestartCount,
			lastOf(of.LastTerminationState)))
	}
	return strings.Join(parts, "; ")
}

// stateOf names a container's state.
func stateOf(s corev1.ContainerState, failed bool) string {
	switch {
	case s.Running != nil:
		return "runs"
	case s.Terminated != nil:
		return fmt.Sprintf("ended with %d (%s)", s.Terminated.ExitCode, s.Terminated.Reason)
	case failed:
		return "waits " + unsaid
	case s.Waiting != nil:
		return "waits " + s.Waiting.Reason
	}
	return "unknown"
}

func lastOf(s corev1.ContainerState) string {
	if s.Terminated == nil {
		return ""
	}
	return fmt.Sprintf(", before ended with %d", s.Terminated.ExitCode)
}
