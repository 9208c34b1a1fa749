package podsync

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/admission"
	"kubelot.dev/services/podsync/internal/admission/allocation"
	"kubelot.dev/services/podsync/internal/admission/ledger"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/runtime/cgroups"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/worker"
)

// renew takes the newest form of the pod. The pod keeps the resources that it held.
func (e *entry) renew(pod *corev1.Pod) {
	if e.pod == pod {
		return
	}
	e.pod, e.told = pod, false
	held, _ := allocation.Keep(pod, e.held.Pod)
	e.hold(held)
	if e.held.Pod == e.pod {
		e.pending, e.since = nil, time.Time{}
	}
}

// hold notes what the pod holds.
func (e *entry) hold(pod *corev1.Pod) {
	e.held, e.requests = admission.Hold(pod), cgroups.RequestsOf(pod)
}

// wants reports whether the pod asks for other resources than it holds and may get them.
func (e *entry) wants() bool { return e.held.Pod != e.pod && e.admitted && !e.ending() }

// resizes allocates what pods ask for, one pod after the other, as far as the node has it, and then tells the workers
// what is new. It runs whenever a pod or the node has changed, as there may be room then for a pod that was put off.
func (d *dispatcher) resizes() {
	var waiting []*entry
	for _, e := range d.workers {
		if e.wants() {
			waiting = append(waiting, e)
		}
	}
	slices.SortFunc(waiting, func(a, b *entry) int {
		return allocation.Order(allocation.Waiting{Wanted: a.pod, Held: a.held.Pod, Since: a.since},
			allocation.Waiting{Wanted: b.pod, Held: b.held.Pod, Since: b.since})
	})
	for _, e := range waiting {
		d.resize(e)
	}
	for _, e := range d.workers {
		if !e.told {
			e.told = true
			e.Update(e.held.Pod, e.pending)
		}
	}
}

// resize allocates what the pod asks for, or puts it off.
func (d *dispatcher) resize(e *entry) {
	generation := e.pod.Generation
	swaps := func(pod *corev1.Pod, c *corev1.Container) bool { return criconfig.Swaps(d.node.CRI(), pod, c) }
	if why := d.facts.Policies.Infeasible(e.pod, e.held.Pod, swaps); why != nil {
		if e.pending == nil || e.pending.Reason != corev1.PodReasonInfeasible || e.pending.Generation != generation {
			d.metrics.Infeasible(why.Detail)
		}
		e.putOff(d.report, worker.Pending{
			Reason: corev1.PodReasonInfeasible, Message: why.Message, Generation: generation,
		})
		return
	}
	r, room := d.grant(ledger.Claim{Pod: e.pod})
	if r == nil {
		e.Await(room)
		if e.pending != nil {
			d.metrics.DeferredAccepted(d.pacing.trigger)
		}
		e.hold(e.pod)
		e.pending, e.since, e.told = nil, time.Time{}, false
		d.report.Event(e.pod, "", corev1.EventTypeNormal, "ResizeStarted", allocation.Message("Pod resize started",
			e.pod, generation, ""))
		return
	}
	e.putOff(d.report, worker.Pending{Reason: corev1.PodReasonDeferred, Message: r.Message, Generation: generation})
}

// putOff leaves the pod what it has, and says why.
func (e *entry) putOff(report *events.Reporter, pending worker.Pending) {
	if e.since.IsZero() {
		e.since = time.Now()
	}
	if e.pending != nil && *e.pending == pending {
		return
	}
	if e.pending == nil || e.pending.Generation != pending.Generation || e.pending.Reason != pending.Reason {
		report.Event(e.pod, "", corev1.EventTypeWarning, "Resize"+pending.Reason, allocation.Message(
			"Pod resize "+pending.Reason, e.pod, pending.Generation, pending.Message))
	}
	e.pending, e.told = &pending, false
}
