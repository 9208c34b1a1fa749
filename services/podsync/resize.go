package podsync

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/alloc"
	"kubelot.dev/services/podsync/internal/podstatus"
	"kubelot.dev/services/podsync/internal/worker"
)

// renew takes the newest form of the pod; it goes on to hold what it held.
func (e *entry) renew(pod *corev1.Pod) {
	if e.pod == pod {
		return
	}
	e.pod, e.told = pod, false
	e.held, _ = alloc.Keep(pod, e.held)
	if e.held == e.pod {
		e.pending, e.since = nil, time.Time{}
	}
}

// wants tells whether the pod asks for other resources than it holds and may get them.
func (e *entry) wants() bool {
	return e.held != e.pod && e.admitted && !e.removed && !e.Ending() && e.pod.DeletionTimestamp == nil && !podstatus.Terminal(e.pod.Status.Phase)
}

// resizes allocates what pods ask for where the node has it, one after the other, and then tells the workers what is new. It
// is asked whenever a pod or the node has changed, which is when a pod that was put off may have its turn.
func (d *dispatcher) resizes() {
	var waiting []*entry
	for _, e := range d.workers {
		if e.wants() {
			waiting = append(waiting, e)
		}
	}
	slices.SortFunc(waiting, func(a, b *entry) int {
		return alloc.Order(alloc.Waiting{Wanted: a.pod, Held: a.held, Since: a.since}, alloc.Waiting{Wanted: b.pod, Held: b.held, Since: b.since})
	})
	for _, e := range waiting {
		d.resize(e)
	}
	for _, e := range d.workers {
		if !e.told {
			e.told = true
			e.Update(e.held, e.pending)
		}
	}
}

// resize allocates what the pod asks for, or puts it off.
func (d *dispatcher) resize(e *entry) {
	generation := e.pod.Generation
	r := d.judge(e.pod)
	if r == nil {
		if e.pending != nil {
			d.meter.DeferredAccepted(d.trigger)
		}
		e.held, e.pending, e.since, e.told = e.pod, nil, time.Time{}, false
		d.report.Event(e.pod, "", corev1.EventTypeNormal, "ResizeStarted", alloc.Message("Pod resize started", e.pod, generation, ""))
		return
	}
	pending := worker.Pending{Reason: corev1.PodReasonDeferred, Message: r.Message, Generation: generation}
	if e.pending != nil && *e.pending == pending {
		return
	}
	if e.pending == nil || e.pending.Generation != generation {
		d.report.Event(e.pod, "", corev1.EventTypeWarning, "ResizeDeferred", alloc.Message("Pod resize Deferred", e.pod, generation, r.Message))
	}
	if e.since.IsZero() {
		e.since = time.Now()
	}
	e.pending, e.told = &pending, false
}
