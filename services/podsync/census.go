package podsync

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
	"kubelot.dev/services/podsync/internal/alloc"
	"kubelot.dev/services/podsync/internal/meter"
	"kubelot.dev/services/podsync/internal/source"
)

// What gives a resize that was put off its turn, in the words of the kubelet's metric.
const (
	triggerUpdated = "pod_updated"
	triggerRemoved = "pods_removed"
)

// renew has the pod's worker know its newest form, and measures what is new of it.
func (d *dispatcher) renew(e *entry, p *source.Pod) {
	if e.pod == p.Pod {
		return
	}
	if e.pod.Generation != p.Pod.Generation {
		d.objects.Hold(p.Pod)
		alloc.Each(&p.Pod.Spec, func(c *corev1.Container) {
			if before := alloc.Of(e.pod, c.Name); before != nil {
				d.meter.ResizeAsked(before, &c.Resources)
			}
		})
	}
	e.renew(p.Pod)
	if p.Source == topic.SourceAPI {
		obs := d.observed[string(p.Pod.UID)]
		d.meter.Seen(p.Pod, &obs)
	}
}

// measureStart measures a pod that gets its worker; fresh tells that it hasn't run before, and may.
func (d *dispatcher) measureStart(p *source.Pod, fresh bool) {
	if fresh {
		d.meter.WorkerStarted(p.Pod, p.FirstSeen)
	}
	if p.Source == topic.SourceAPI {
		d.meter.Appeared(p.Pod)
	}
}

// reap takes leave of a worker that has ended, whose place and resources others may have now. A pod that is gone for good is
// forgotten whatever pleg still says of it: one that comes again under its UID, as a static pod does, is another life.
func (d *dispatcher) reap(uid string) {
	before := d.workers[uid]
	delete(d.workers, uid)
	if before.Gone() {
		delete(d.volumes, uid)
		if _, known := d.observed[uid]; known {
			delete(d.observed, uid)
			d.left[uid] = topic.PodObservation{At: time.Now(), Uptime: observe.Uptime()}
		}
	}
	d.objects.Release(uid)
	d.meter.Gone(uid)
	d.trigger = triggerRemoved
	d.sync()
	d.trigger = triggerUpdated
	if e := d.workers[uid]; e != nil && before.removed {
		d.meter.Restarted(e.source != topic.SourceAPI)
	}
}

// census counts the pods.
func (d *dispatcher) census() meter.Census {
	c := meter.Census{Desired: map[bool]int{}, Active: map[bool]int{}, Working: map[meter.Work]int{}, PendingResizes: map[string]int{}}
	for i := range d.desired.Pods {
		p := &d.desired.Pods[i]
		c.Desired[p.Source != topic.SourceAPI]++
		c.Ephemeral += len(p.Pod.Spec.EphemeralContainers)
	}
	for _, e := range d.workers {
		static := e.source != topic.SourceAPI
		if e.active() {
			c.Active[static]++
		}
		if static && e.admitted && !e.removed && d.cfg.Kubeconfig != "" {
			c.Mirrors++
		}
		if e.pending != nil {
			c.PendingResizes[e.pending.Reason]++
		}
		for _, condition := range e.pod.Status.Conditions {
			if condition.Type == corev1.PodResizeInProgress && condition.Status == corev1.ConditionTrue {
				c.Resizing++
			}
		}
		c.Working[e.work()]++
	}
	return c
}

func (e *entry) work() meter.Work {
	w := meter.Work{Lifecycle: meter.Sync, Config: meter.Desired, Static: e.source != topic.SourceAPI}
	switch {
	case e.Over():
		w.Lifecycle = meter.Terminated
	case e.removed || e.Ending() || e.pod.DeletionTimestamp != nil:
		w.Lifecycle = meter.Terminating
	}
	switch {
	case e.stray:
		w.Config, w.Static = meter.RuntimeOnly, false
	case e.removed:
		w.Config = meter.Orphan
	}
	return w
}
