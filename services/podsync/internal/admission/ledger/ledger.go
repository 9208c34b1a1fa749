// Package ledger decides who holds what of the node, who must end for a pod that comes or grows, and for whose end that
// pod waits. It is pure: no I/O, no clock.
//
// # Guarantees
//
//   - A pod holds what it has from its admission until nothing of it runs, also while it has no worker yet after a
//     restart. A pod that was preempted, or that nobody wants any more, holds nothing: its place is promised.
//   - Nobody waits for more ends than it needs. Who gets the place of a preempted pod waits for its end. Another pod
//     waits for it too where it doesn't fit beside it.
//   - Restarts of the daemon don't prolong the wait for a pod that can't be ended.
package ledger

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/admission"
)

// leastPatience is how long pods that don't end are waited for at least.
const leastPatience = 10 * time.Second

// patience is how long the end of a preempted pod with the grace period is waited for at most: where it doesn't end,
// half of that again.
func patience(grace time.Duration) time.Duration { return max(grace*3/2, leastPatience) }

// Promised is until when the end of a pod is waited for that was preempted before a restart of the daemon. It counts
// from when the end began, as the bus has it: otherwise each restart would make the wait longer. What the bus doesn't
// know yet begins now. grace is the pod's own grace period.
func Promised(before *topic.Pod, grace time.Duration, now time.Time) time.Time {
	latest := now.Add(patience(grace))
	if before.Deadline == nil || before.GracePeriodSeconds == nil {
		return latest
	}
	grace = time.Duration(*before.GracePeriodSeconds) * time.Second
	// The clock may have been set back.
	if until := before.Deadline.Add(patience(grace) - grace); until.Before(latest) {
		return until
	}
	return latest
}

// Ledger is who is on the node.
type Ledger struct {
	Node  *corev1.Node
	Facts admission.Facts
	// Grace is the termination grace period of a pod.
	Grace  func(*corev1.Pod) time.Duration
	Pods   []Pod
	Former []Former
}

// Pod is a pod that has a worker.
type Pod struct {
	admission.Held
	// Admitted is false for a pod that was refused.
	Admitted bool
	// Over is true where no container of it runs or ever will.
	Over bool
	// Yields is until when its end is waited for, as it was preempted or nobody wants it; zero for any other pod.
	Yields time.Time
	// Waits is true where it waits for room itself, and nothing of it runs; Beside as in the decision about it.
	Waits, Beside bool
}

// Active reports whether the pod was admitted and something of it runs or may run still, unless its place is another
// pod's already.
func (p Pod) Active() bool { return p.Admitted && p.Yields.IsZero() && !p.Over }

// Former is a pod of an earlier run of the daemon that has no worker yet.
type Former struct {
	Pod *corev1.Pod
	// Wanted is true where its source wants it, Silent where its source hasn't delivered yet.
	Wanted, Silent bool
	// FromAPI is true for a pod of the API server.
	FromAPI bool
	// Runs is true where containers of it run, Begins where it was to begin when the earlier run ended.
	Runs, Begins bool
}

// holds reports whether the pod counts: it runs, or is to begin. A static pod that its source doesn't have any more is
// ended when all sources have delivered, and one that replaces it under another name needn't wait for that.
func (f Former) holds() bool {
	return (f.Wanted || f.Silent) && (f.Runs || f.Begins) || f.Runs && f.FromAPI
}

// Claim is a pod that asks for its place, or for more than it holds.
type Claim struct {
	Pod *corev1.Pod
	// Granted is true for a pod that was admitted before: it is never refused.
	Granted bool
}

// Decision is the answer to a claim.
type Decision struct {
	// Refused is why the pod can't have what it asks for; nil if it can.
	Refused *admission.Rejection
	// Lacks is the first resource that the victims are to free.
	Lacks string
	// Victims are the pods that must be ended for it.
	Victims []End
	// Awaits are the ends that the pod waits for, those of its victims first. Beside is true where others that yield may
	// be there still when these have ended.
	Awaits []End
	Beside bool
}

// End is the end of a pod that is waited for until then at most.
type End struct {
	Pod   *corev1.Pod
	Until time.Time
}

// Judge decides about a claim. For a critical pod less important ones are victims, if that makes enough room.
func (l *Ledger) Judge(c Claim, now time.Time) Decision {
	held := l.held()
	var r *admission.Rejection
	if !c.Granted {
		r = admission.Admit(c.Pod, l.Node, held, l.Facts)
	}
	if r == nil {
		ends, beside := l.awaits(c.Pod, nil, now)
		return Decision{Awaits: ends, Beside: beside}
	}
	var victims []End
	for _, pod := range admission.Victims(c.Pod, r, held) {
		victims = append(victims, End{pod, now.Add(patience(l.Grace(pod)))})
	}
	if len(victims) == 0 {
		return Decision{Refused: r}
	}
	ends, beside := l.awaits(c.Pod, victims, now)
	return Decision{Lacks: r.Lacks(), Victims: victims, Awaits: ends, Beside: beside}
}

// held is what is held on the node: by the active pods, and by those of an earlier run that count.
func (l *Ledger) held() []admission.Held {
	var held []admission.Held
	for i := range l.Pods {
		if l.Pods[i].Active() {
			held = append(held, l.Pods[i].Held)
		}
	}
	for i := range l.Former {
		if l.Former[i].holds() {
			held = append(held, admission.Hold(l.Former[i].Pod))
		}
	}
	return held
}

// awaits are the ends that the pod waits for: those of the victims, and those of pods that yield to others beside which
// it doesn't fit. beside is true where it waits for some only, and will run beside the rest.
func (l *Ledger) awaits(pod *corev1.Pod, victims []End, now time.Time) (ends []End, beside bool) {
	var yielding []Pod
	gone, waiting, crowded := map[types.UID]bool{}, map[types.UID]bool{}, false
	for _, v := range victims {
		gone[v.Pod.UID] = true
	}
	for i := range l.Pods {
		p := &l.Pods[i]
		if p.Yields.After(now) && !p.Over {
			yielding = append(yielding, *p)
		}
		waiting[p.Pod.UID], crowded = p.Waits, crowded || p.Waits && p.Beside
	}
	there := slices.DeleteFunc(l.held(), func(h admission.Held) bool { return gone[h.Pod.UID] })
	fits := func(others []admission.Held) bool { return admission.Admit(pod, l.Node, others, l.Facts) == nil }
	if r := admission.Admit(pod, l.Node, there, l.Facts); len(yielding) == 0 || r != nil && !r.Passes() {
		return victims, false // no end helps
	}
	// Pods that wait for all of these ends are no hindrance: nothing of them runs before.
	runs := slices.DeleteFunc(slices.Clone(there), func(h admission.Held) bool { return waiting[h.Pod.UID] })
	for _, p := range yielding {
		runs = append(runs, p.Held)
	}
	if !crowded && fits(runs) {
		return victims, false
	}
	// It runs beside those that take longest, if all others that are to run then leave room for that.
	slices.SortStableFunc(yielding, func(a, b Pod) int { return b.Yields.Compare(a.Yields) })
	ends = slices.Clip(victims)
	for _, p := range yielding {
		if with := append(slices.Clip(there), p.Held); fits(with) {
			there, beside = with, true
		} else {
			ends = append(ends, End{p.Pod, p.Yields})
		}
	}
	return ends, beside
}
