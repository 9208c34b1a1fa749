package podsync

import (
	"runtime"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/admit"
	"kubelot.dev/services/podsync/internal/alloc"
	"kubelot.dev/services/podsync/internal/podstatus"
	"kubelot.dev/services/podsync/internal/source"
	"kubelot.dev/services/podsync/internal/worker"
)

// admit starts a worker for a pod that has none. A static pod waits until the one it replaces is gone, and any until what is left
// of an earlier one with its UID is. A pod of the API server's waits for the Node that the API server has, and admit is false: the
// node's own draft of it lacks the labels and taints of others, and a rejection is for good.
func (d *dispatcher) admit(p *source.Pod) bool {
	if d.replaces(p) || d.sweeping[p.Pod.UID] {
		return true
	}
	uid := string(p.Pod.UID)
	cfg := worker.Config{Source: p.Source, FirstSeen: p.FirstSeen, Previous: p.Pod.Status}
	obs := d.observed[uid]
	var heldBefore *corev1.Pod
	if before, ok := d.before[uid]; ok {
		cfg.Restored, cfg.FirstSeen, heldBefore = &before, before.FirstSeen, before.Pod
	}
	cfg.Pod, _ = alloc.Keep(p.Pod, heldBefore)
	// The API server may not have heard yet what this daemon last said of the pod.
	if last, ok := d.status[uid]; ok && !podstatus.Terminal(p.Pod.Status.Phase) {
		cfg.Previous = last.Status
	}
	admitted := cfg.Restored != nil || len(obs.Sandboxes) > 0 || podstatus.Terminal(p.Pod.Status.Phase) || p.Pod.DeletionTimestamp != nil
	if !admitted && p.Source == topic.SourceAPI && d.facts.Node().UID == "" {
		return false
	}
	if !admitted {
		cfg.Reject = d.refusal(cfg.Pod)
	}
	d.measureStart(p, !admitted && cfg.Reject == nil)
	d.start(cfg, obs).renew(p.Pod)
	return true
}

// refusal judges a new pod and tells of it where it isn't admitted; nil where it is.
func (d *dispatcher) refusal(pod *corev1.Pod) *worker.Failed {
	r := d.judge(pod)
	if r == nil {
		return nil
	}
	d.log.Warn("pod is not admitted", "pod", pod.Name, "namespace", pod.Namespace, "uid", string(pod.UID), "reason", r.Reason, "message", r.Message)
	d.report.Event(pod, "", corev1.EventTypeWarning, r.Reason, r.Message)
	d.meter.Rejected(r.Reason)
	return &worker.Failed{Reason: r.Reason, Message: "Pod was rejected: " + r.Message}
}

// replaces tells whether another static pod has the static pod's name still. One that runs since before this daemon's start, and whose
// source has this pod in its place, is ended: nothing more that other sources may deliver can want it.
func (d *dispatcher) replaces(p *source.Pod) bool {
	if p.Source == topic.SourceAPI {
		return false
	}
	for _, e := range d.workers {
		if e.source != topic.SourceAPI && e.pod.Name == p.Pod.Name && e.pod.Namespace == p.Pod.Namespace {
			return true
		}
	}
	for uid, before := range d.before {
		obs, runs := d.observed[uid]
		if runs && before.Source == p.Source && before.Pod != nil && uid != string(p.Pod.UID) && before.Pod.Name == p.Pod.Name && before.Pod.Namespace == p.Pod.Namespace {
			d.endOrphan(uid, obs)
			return true
		}
	}
	return false
}

// judge asks for the pod's admission. A critical pod takes the place of less important ones where that is enough.
func (d *dispatcher) judge(pod *corev1.Pod) *admit.Rejection {
	active := d.active()
	r := admit.Admit(pod, d.facts.Node(), active, d.admissionFacts())
	if r == nil {
		return nil
	}
	victims := admit.Victims(pod, r, active)
	for _, victim := range victims {
		d.log.Warn("pod is preempted by a critical one", "pod", victim.Name, "namespace", victim.Namespace, "uid", string(victim.UID), "critical", pod.Name)
		d.report.Event(victim, "", corev1.EventTypeWarning, admit.ReasonPreempting, admit.MessagePreempting)
		d.meter.Preempted(r.Lacks())
		d.workers[string(victim.UID)].Evict(worker.Eviction{
			Reason: admit.ReasonPreempting, Message: admit.MessagePreempting, Disruption: corev1.PodReasonTerminationByKubelet, DisruptionMessage: admit.MessageDisrupting,
		})
	}
	if len(victims) > 0 {
		return nil
	}
	return r
}

func (d *dispatcher) start(cfg worker.Config, obs topic.PodObservation) *entry {
	uid := string(cfg.Pod.UID)
	nextRank := func() uint64 { return d.rank.Add(1) }
	cfg.Rank, cfg.NextRank = nextRank(), nextRank
	cfg.Node, cfg.Settling, cfg.Crowded, cfg.Meter = d.facts, d.inherited.settling, d.actor.Crowded, d.meter
	cfg.Applied = d.cgroups.Applied
	d.objects.Hold(cfg.Pod)
	e := &entry{Worker: worker.New(cfg, obs, d.actor, d.report, d.log), pod: cfg.Pod, held: cfg.Pod, source: cfg.Source, admitted: cfg.Reject == nil, told: true}
	d.workers[uid] = e
	volumes, known := d.volumes[uid]
	d.wg.Go(func() {
		e.Run(d.ctx, d.opCtx)
		if e.Gone() {
			d.report.Gone(uid)
		}
		select {
		case d.ended <- uid:
		case <-d.ctx.Done():
		}
	})
	if known {
		e.Volumes(volumes)
	}
	for key, verdict := range d.probes[uid] {
		e.Probe(key, verdict)
	}
	return e
}

// active are the pods that were admitted and have not ended: they hold resources and ports.
func (d *dispatcher) active() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, e := range d.workers {
		if e.active() {
			pods = append(pods, e.held)
		}
	}
	return pods
}

func (e *entry) active() bool {
	return e.admitted && !e.Ending() && !podstatus.Terminal(e.pod.Status.Phase)
}

func (d *dispatcher) admissionFacts() admit.Facts {
	return admit.Facts{
		OS: runtime.GOOS, Arch: runtime.GOARCH, AllowedUnsafeSysctls: d.cfg.Kubelet.AllowedUnsafeSysctls,
		AppArmor: hasAppArmor(), Pressure: d.pressure,
	}
}
