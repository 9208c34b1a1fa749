package podsync

import (
	"os"
	"runtime"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/podsync/internal/admission"
	"kubelot.dev/services/podsync/internal/admission/allocation"
	"kubelot.dev/services/podsync/internal/source"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/podstatus"
)

// admit starts a worker for a pod that has none. A static pod waits until the pod that it replaces is gone. Every pod
// waits until the leftovers of an earlier pod with its UID are removed. A pod of the API server waits for the Node
// object at the API server: the node's own draft of it lacks the labels and taints of others, and a rejection is final.
// A pod that may ask for devices waits until the resource daemon has said which resources are some. Only in these last
// two cases admit returns false.
func (d *dispatcher) admit(p *source.Pod) bool {
	if d.workers.hasNamesake(p) {
		return true
	}
	if uid, obs, left := d.recovery.predecessor(p, d.known.observed); left {
		d.endOrphan(uid, obs)
		return true
	}
	if d.orphans.removing[p.Pod.UID] {
		return true
	}
	uid := string(p.Pod.UID)
	cfg := worker.Config{Source: p.Source, FirstSeen: p.FirstSeen, Previous: p.Pod.Status}
	obs := d.known.observed[uid]
	var heldBefore *corev1.Pod
	if before, ok := d.recovery.pods[uid]; ok {
		cfg.Restored, cfg.FirstSeen, heldBefore = &before, before.FirstSeen, before.Pod
	}
	cfg.Pod, _ = allocation.Keep(p.Pod, heldBefore)
	// The API server may not have heard yet what this daemon last said of the pod.
	if last, ok := d.recovery.statuses[uid]; ok && !podstatus.Terminal(p.Pod.Status.Phase) {
		cfg.Previous = last.Status
	}
	admitted := cfg.Restored != nil || len(obs.Sandboxes) > 0 || podstatus.Terminal(p.Pod.Status.Phase) ||
		p.Pod.DeletionTimestamp != nil
	cfg.Allocates = admission.AsksForItself(p.Pod, d.facts.Policies)
	if !admitted && !judgeable(p, d.node.Node(), cfg.Allocates && !d.known.heard) {
		return false
	}
	if !admitted {
		cfg.Reject, cfg.Room = d.refuse(cfg.Pod)
	}
	measureStart(d.metrics, p, !admitted && cfg.Reject == nil)
	e := d.launch(cfg, obs)
	e.wantedIn = d.pacing.round
	e.renew(p.Pod)
	return true
}

// judgeable reports whether enough is known of the node to admit a pod or to reject it for good; deaf is true where
// nobody has said which resources are devices, of which the pod wants some.
func judgeable(p *source.Pod, node *corev1.Node, deaf bool) bool {
	return (p.Source != topic.SourceAPI || node.UID != "") && !deaf
}

// refuse judges a new pod, and reports it if it isn't admitted. If it is, room is as makeRoom returns it.
func (d *dispatcher) refuse(pod *corev1.Pod) (failed *worker.Failed, room worker.Room) {
	r, room := d.makeRoom(pod)
	if r == nil {
		return nil, room
	}
	d.log.Warn("pod is not admitted", "pod", pod.Name, "namespace", pod.Namespace, "uid", string(pod.UID),
		"reason", r.Reason, "message", r.Message)
	d.report.Event(pod, "", corev1.EventTypeWarning, r.Reason, r.Message)
	d.metrics.Rejected(r.Reason)
	return &worker.Failed{Reason: r.Reason, Message: "Pod was rejected: " + r.Message}, room
}

// hasNamesake reports whether another static pod with the same name still has a worker.
func (w workers) hasNamesake(p *source.Pod) bool {
	if p.Source == topic.SourceAPI {
		return false
	}
	for _, e := range w {
		if e.source != topic.SourceAPI && e.pod.Name == p.Pod.Name && e.pod.Namespace == p.Pod.Namespace {
			return true
		}
	}
	return false
}

// predecessor is a pod with the static pod's name that an earlier run of this daemon has started. Its own source has
// replaced it by this pod, so it needn't wait for the other sources before it is ended.
func (r *recovery) predecessor(p *source.Pod,
	observed map[string]topic.PodObservation,
) (uid string, obs topic.PodObservation, found bool) {
	if p.Source == topic.SourceAPI {
		return "", obs, false
	}
	for uid, before := range r.pods {
		obs, runs := observed[uid]
		if runs && before.Source == p.Source && before.Pod != nil && uid != string(p.Pod.UID) &&
			before.Pod.Name == p.Pod.Name && before.Pod.Namespace == p.Pod.Namespace {
			return uid, obs, true
		}
	}
	return "", obs, false
}

// makeRoom returns why the pod can't be admitted; nil if it can. For a critical pod it evicts less important pods, if
// that makes enough room: room waits for their ends.
func (d *dispatcher) makeRoom(pod *corev1.Pod) (r *admission.Rejection, room worker.Room) {
	active := d.workers.active()
	if r = admission.Admit(pod, d.node.Node(), active, d.facts); r == nil {
		return nil, room
	}
	victims := admission.Victims(pod, r, active)
	for _, victim := range victims {
		d.log.Warn("pod is preempted by a critical one", "pod", victim.Name, "namespace", victim.Namespace,
			"uid", string(victim.UID), "critical", pod.Name)
		d.report.Event(victim, "", corev1.EventTypeWarning, admission.ReasonPreempting, admission.MessagePreempting)
		d.metrics.Preempted(r.Lacks())
		e := d.workers[string(victim.UID)]
		e.Evict(worker.Eviction{
			Reason: admission.ReasonPreempting, Message: admission.MessagePreempting,
			Disruption: corev1.PodReasonTerminationByKubelet, DisruptionMessage: admission.MessageDisrupting,
		})
		room.Await(e.Worker, plan.PodGrace(victim))
	}
	if len(victims) > 0 {
		return nil, room
	}
	return r, room
}

// admissionFacts are the facts of the machine that admission asks for, except the node's pressure, which changes.
func admissionFacts(cfg *config.Config) admission.Facts {
	return admission.Facts{
		OS: runtime.GOOS, Arch: runtime.GOARCH, AllowedUnsafeSysctls: cfg.Kubelet.AllowedUnsafeSysctls,
		AppArmor: hasAppArmor(), Policies: admission.Policies{
			CPU: cfg.Kubelet.CPUManagerPolicy, Memory: cfg.Kubelet.MemoryManagerPolicy,
			Topology: cfg.Kubelet.TopologyManagerPolicy,
		},
	}
}

// hasAppArmor reports whether the kernel enforces AppArmor profiles.
func hasAppArmor() bool {
	data, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(data), "Y")
}

// launcher is what all workers are made with.
type launcher struct {
	executor worker.Executor
	crowded  func() bool
	settling func() bool
	applied  func(*corev1.Pod) *corev1.ResourceRequirements
	rank     atomic.Uint64
}

// nextRank returns a place behind all places that were given before.
func (l *launcher) nextRank() uint64 { return l.rank.Add(1) }

// launch gives a pod its worker.
func (d *dispatcher) launch(cfg worker.Config, obs topic.PodObservation) *entry {
	uid, l := string(cfg.Pod.UID), &d.launcher
	cfg.Rank, cfg.NextRank = l.nextRank(), l.nextRank
	cfg.Node, cfg.Settling, cfg.Crowded, cfg.Applied, cfg.Metrics = d.node, l.settling, l.crowded, l.applied, d.metrics
	cfg.Shared = func() plan.Cpuset { return plan.Cpuset(d.node.Shared()) }
	d.objects.Hold(cfg.Pod)
	e := &entry{
		Worker: worker.New(cfg, obs, l.executor, d.report, d.log), pod: cfg.Pod, source: cfg.Source,
		admitted: cfg.Reject == nil, told: true,
		shutDown: cfg.Previous.Reason == topic.ReasonShutdown ||
			cfg.Reject != nil && cfg.Reject.Reason == admission.ReasonShutdown,
	}
	e.hold(cfg.Pod)
	d.workers[uid] = e
	volumes, known := d.known.volumes[uid]
	d.tasks.Go(func() {
		e.Run(d.tasks.ctx, d.tasks.opCtx)
		if e.Gone() {
			d.report.Gone(uid)
		}
		d.tasks.Do(d.tasks.ctx, func() { d.reap(uid) })
		e.Wait()
	})
	if known {
		e.Volumes(volumes)
	}
	if a, known := d.known.allocated[uid]; known {
		e.Allocation(a)
	}
	for key, verdict := range d.known.probes[uid] {
		e.Probe(key, verdict)
	}
	return e
}

func (e *entry) active() bool {
	return e.admitted && !e.Ending() && !podstatus.Terminal(e.pod.Status.Phase)
}
