package podsync

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/admission/allocation"
	"kubelot.dev/services/podsync/internal/admission/features"
	"kubelot.dev/services/podsync/internal/source"
	"kubelot.dev/services/podsync/internal/worker/metrics"
)

// renew gives the pod's worker the pod's newest form, and measures what has changed. As with the kubelet, a change that
// needs a feature which the node doesn't declare only has an Event: the API server refuses it.
func (d *dispatcher) renew(e *entry, p *source.Pod) {
	if e.pod == p.Pod {
		return
	}
	if e.pod.Generation != p.Pod.Generation {
		d.objects.Hold(p.Pod)
		d.metrics.ResizeAsked(e.pod, p.Pod)
	}
	if why := features.MissingFor(e.pod, p.Pod); why != "" {
		d.report.Event(p.Pod, "", corev1.EventTypeWarning, features.ReasonChanged, why)
	}
	e.renew(p.Pod)
	if p.Source == topic.SourceAPI {
		obs := d.known.observed[string(p.Pod.UID)]
		d.metrics.Seen(p.Pod, &obs)
	}
}

// reap forgets a worker that has ended; other pods may have its place and resources now. A pod that is gone for good is
// forgotten even if pleg still reports something of it: a pod that comes again with the same UID, as static pods do,
// begins from scratch.
func (d *dispatcher) reap(uid string) {
	before := d.workers[uid]
	delete(d.workers, uid)
	if before.Gone() {
		d.known.forget(uid)
		delete(d.recovery.pods, uid)
		delete(d.recovery.statuses, uid)
	}
	d.objects.Release(uid)
	d.metrics.Gone(uid)
	d.pacing.trigger, d.pacing.stale = metrics.PodsRemoved, true
	d.pacing.gone[uid] = before.removed
}

// counts counts the pods that are wanted and those that have a worker; mirrored is true where static pods have mirror
// pods.
func (w workers) counts(wanted []source.Pod, mirrored bool) metrics.PodCounts {
	c := metrics.PodCounts{
		Desired: map[bool]int{}, Active: map[bool]int{}, Working: map[metrics.Work]int{},
		PendingResizes: map[string]int{},
	}
	for i := range wanted {
		p := &wanted[i]
		c.Desired[p.Source != topic.SourceAPI]++
		c.Ephemeral += len(p.Pod.Spec.EphemeralContainers)
	}
	for _, e := range w {
		static := e.source != topic.SourceAPI
		if e.active() {
			c.Active[static]++
		}
		if static && e.admitted && !e.removed && mirrored {
			c.Mirrors++
		}
		if e.pending != nil {
			c.PendingResizes[e.pending.Reason]++
		}
		if allocation.Stated(&e.pod.Status, corev1.PodResizeInProgress) != nil {
			c.Resizing++
		}
		c.Working[e.work()]++
	}
	return c
}

func (e *entry) work() metrics.Work {
	w := metrics.Work{Lifecycle: metrics.Sync, Config: metrics.Desired, Static: e.source != topic.SourceAPI}
	switch {
	case e.Over():
		w.Lifecycle = metrics.Terminated
	case e.ending():
		w.Lifecycle = metrics.Terminating
	}
	switch {
	case e.stray:
		w.Config, w.Static = metrics.RuntimeOnly, false
	case e.removed:
		w.Config = metrics.Orphan
	}
	return w
}
