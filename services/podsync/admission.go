package podsync

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/podsync/internal/admission"
	"kubelot.dev/services/podsync/internal/admission/allocation"
	"kubelot.dev/services/podsync/internal/admission/ledger"
	"kubelot.dev/services/podsync/internal/source"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/podstatus"
)

// takeIn gives each wanted pod a worker, or its worker the pod's newest form, and returns how many pods wait for facts
// of the node. Pods that are on the node already come first: they count when the others are judged.
func takeIn(d *dispatcher) (waiting int) {
	take := func(p *source.Pod) {
		if e := d.workers[string(p.Pod.UID)]; e != nil {
			e.wantedIn = d.pacing.round
			d.renew(e, p)
		} else if !d.doubted(p) && !d.admit(p) {
			waiting++
		}
	}
	var others []*source.Pod
	for i := range d.wanted.pods {
		p := &d.wanted.pods[i]
		uid := string(p.Pod.UID)
		if d.workers[uid] != nil || d.known.isHere(p.Pod) && d.recovery.pods[uid].Resize == nil {
			take(p)
		} else {
			others = append(others, p)
			if p.Source != topic.SourceAPI {
				markReplaced(d.workers, p)
			}
		}
	}
	removeUnwanted(d) // before others are judged, who get their places
	for _, p := range others {
		take(p) // it may have a worker by now, which ends it for one of the others
	}
	return waiting
}

// isHere reports whether the pod, which has no worker, has begun on this node or only has to end.
func (k *known) isHere(pod *corev1.Pod) bool {
	return len(k.observed[string(pod.UID)].Sandboxes) > 0 || podstatus.Terminal(pod.Status.Phase) ||
		pod.DeletionTimestamp != nil
}

// doubted reports whether a pod waits for the Node as the API server has it now. The known one may be older than the
// label for which the scheduler has chosen this node, and a rejection is final.
func (d *dispatcher) doubted(p *source.Pod) bool {
	_, before := d.recovery.pods[string(p.Pod.UID)]
	return p.Source == topic.SourceAPI && !before && !d.known.isHere(p.Pod) &&
		!admission.Attracts(p.Pod, d.node.Node(), d.facts) &&
		d.node.Renew(d.tasks.ctx, string(p.Pod.UID), d.tasks.slow, func() { d.pacing.stale = true })
}

// admit starts a worker for a pod that has none. A static pod waits until the pod that it replaces holds nothing. Every
// pod waits until the leftovers of an earlier pod with its UID are removed. A pod of the API server waits for the Node
// object at the API server: the node's own draft of it lacks the labels and taints of others, and a rejection is final.
// A pod that may ask for devices waits until the resource daemon has said which resources are some. Only in these last
// two cases admit returns false.
func (d *dispatcher) admit(p *source.Pod) bool {
	if hasPredecessor(d, p) {
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
	var resize bool
	cfg.Pod, resize = allocation.Keep(p.Pod, heldBefore)
	// The API server may not have heard yet what this daemon last said of the pod.
	if last, ok := d.recovery.statuses[uid]; ok && !podstatus.Terminal(p.Pod.Status.Phase) {
		cfg.Previous = last.Status
	}
	if admission.RefusedBefore(p.Source, cfg.Previous, obs) { // nobody creates it again
		cfg.Restored, cfg.Previous = nil, corev1.PodStatus{}
	}
	cfg.Pending = worker.PendingBefore(&cfg.Previous, resize)
	admitted := cfg.Restored != nil || d.known.isHere(p.Pod)
	cfg.Allocates = admission.AsksForItself(p.Pod, d.facts.Policies)
	if !admitted && (p.Source == topic.SourceAPI && d.node.Node().UID == "" || cfg.Allocates && !d.known.heard) {
		return false
	}
	cfg.Reject, cfg.Room = judge(d, &cfg, obs, admitted)
	if p.Source == topic.SourceAPI {
		d.metrics.Appeared(p.Pod)
	}
	e := d.launch(cfg, obs)
	e.wantedIn = d.pacing.round
	e.renew(p.Pod)
	return true
}

// judge says whether a pod is refused, or else what it waits for. One that was admitted before is never refused, and
// has its place if it has begun and isn't being resized.
func judge(d *dispatcher, cfg *worker.Config, obs topic.PodObservation, admitted bool,
) (refused *worker.Failed, waits worker.Room) {
	if admitted && len(obs.Sandboxes) > 0 && (cfg.Restored == nil || cfg.Restored.Resize == nil) {
		return nil, worker.Room{}
	}
	r, room := d.grant(ledger.Claim{Pod: cfg.Pod, Granted: admitted})
	if r == nil {
		if !admitted {
			d.metrics.WorkerStarted(cfg.Pod, cfg.FirstSeen)
		}
		return nil, room
	}
	d.log.Warn("pod is not admitted", "pod", cfg.Pod.Name, "namespace", cfg.Pod.Namespace, "uid", string(cfg.Pod.UID),
		"reason", r.Reason, "message", r.Message)
	d.report.Event(cfg.Pod, "", corev1.EventTypeWarning, r.Reason, r.Message)
	d.metrics.Rejected(r.Reason)
	return &worker.Failed{Reason: r.Reason, Message: "Pod was rejected: " + r.Message}, room
}

// hasPredecessor reports whether a static pod with the same name isn't over yet. One that an earlier run of this daemon
// has started was replaced by its own source, and is ended here: it needn't wait for the other sources.
func hasPredecessor(d *dispatcher, p *source.Pod) bool {
	if p.Source == topic.SourceAPI {
		return false
	}
	if markReplaced(d.workers, p) {
		return true
	}
	for uid, before := range d.recovery.pods {
		obs, runs := d.known.observed[uid]
		if runs && d.workers[uid] == nil && uid != string(p.Pod.UID) && before.Source == p.Source && before.Pod != nil &&
			namesakes(before.Pod, p.Pod) {
			d.endOrphan(uid, obs)
			return markReplaced(d.workers, p)
		}
	}
	return false
}

// markReplaced takes note of the static pods that are to be replaced by the static pod p, and reports whether there are
// some.
func markReplaced(all workers, p *source.Pod) (some bool) {
	for uid, e := range all {
		if e.source != topic.SourceAPI && !e.released && uid != string(p.Pod.UID) && namesakes(e.pod, p.Pod) {
			e.replaced, some = true, true
		}
	}
	return some
}

func namesakes(a, b *corev1.Pod) bool { return a.Name == b.Name && a.Namespace == b.Namespace }

// grant returns why the pod can't have what it asks for; nil if it can. It ends the pods that must make room for it.
// room is what the pod has to wait for.
func (d *dispatcher) grant(c ledger.Claim) (refused *admission.Rejection, room worker.Room) {
	now := time.Now()
	decision := onNode(d, now).Judge(c, now)
	for _, end := range decision.Victims {
		victim, uid := end.Pod, string(end.Pod.UID)
		d.log.Warn("pod is preempted by a critical one", "pod", victim.Name, "namespace", victim.Namespace, "uid", uid,
			"critical", c.Pod.Name)
		d.report.Event(victim, "", corev1.EventTypeWarning, admission.ReasonPreempting, admission.MessagePreempting)
		d.metrics.Preempted(decision.Lacks)
		e := d.workers[uid]
		if e == nil {
			e = takeUp(d, uid, d.known.observed[uid])
		}
		e.preempt()
		e.yields = end.Until
	}
	for _, end := range decision.Awaits {
		if e := d.workers[string(end.Pod.UID)]; !e.Over() {
			room.Await(e.Worker, end.Until)
		}
	}
	room.Beside = decision.Beside
	return decision.Refused, room
}

// onNode is who is on the node: the pods that have a worker, and those of an earlier run that have none yet.
func onNode(d *dispatcher, now time.Time) *ledger.Ledger {
	l := &ledger.Ledger{Node: d.node.Node(), Facts: d.facts, Grace: plan.PodGrace}
	for uid, e := range d.workers {
		p := e.place()
		p.Waits, p.Beside = e.room.Pending(now) && len(d.known.observed[uid].Sandboxes) == 0, e.room.Beside
		l.Pods = append(l.Pods, p)
	}
	if len(d.recovery.pods) == 0 {
		return l
	}
	wanted, silent := d.wanted.uids(), d.wanted.merge.Waiting()
	for uid, before := range d.recovery.pods {
		if d.workers[uid] == nil && before.Pod != nil {
			l.Former = append(l.Former, ledger.Former{
				Pod: before.Pod, Wanted: wanted[types.UID(uid)], Silent: slices.Contains(silent, before.Source),
				FromAPI: before.Source == topic.SourceAPI, Runs: plan.Runs(d.known.observed[uid]),
				Begins: before.Lifecycle == topic.Syncing,
			})
		}
	}
	return l
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
	var e *entry
	if cfg.Source != topic.SourceAPI {
		free := func() { e.released, d.pacing.stale = true, true } // its successor may begin
		cfg.Released = func() { d.tasks.Go(func() { d.tasks.Do(d.tasks.ctx, free) }) }
	}
	e = &entry{
		Worker: worker.New(cfg, obs, l.executor, d.report, d.log), pod: cfg.Pod, source: cfg.Source,
		admitted: cfg.Reject == nil, told: true, room: cfg.Room, pending: cfg.Pending,
		removed: cfg.Restored != nil && cfg.Restored.Removed,
		shutDown: cfg.Previous.Reason == topic.ReasonShutdown ||
			cfg.Reject != nil && cfg.Reject.Reason == admission.ReasonShutdown,
	}
	if cfg.Restored != nil && (e.removed || cfg.Previous.Reason == admission.ReasonPreempting) {
		e.yields = ledger.Promised(cfg.Restored, plan.PodGrace(cfg.Pod), time.Now())
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

// place is what the pod has of the node.
func (e *entry) place() ledger.Pod {
	p := ledger.Pod{Held: e.held, Admitted: e.admitted, Over: e.Over(), Yields: e.yields}
	if e.replaced {
		p.Over, p.Yields = e.released, time.Time{} // nobody gets its place before its successor
	}
	return p
}

// active reports whether the pod holds its place.
func (e *entry) active() bool { return e.place().Active() }

// ending reports whether the pod has ended, or is to end.
func (e *entry) ending() bool {
	return e.removed || e.evicted || !e.yields.IsZero() || e.Over() || e.pod.DeletionTimestamp != nil ||
		podstatus.Terminal(e.pod.Status.Phase)
}

// leave ends the pod, which no source wants any more. Those that come have its place, and wait for its end.
func (e *entry) leave() {
	e.removed = true
	if e.yields.IsZero() {
		e.yields = ledger.Promised(&topic.Pod{}, plan.PodGrace(e.pod), time.Now())
	}
	e.Remove()
	e.Wake() // returns when others can know that: those that come may ask for what it has
}

// preempt ends the pod for one that is critical.
func (e *entry) preempt() {
	e.Evict(worker.Eviction{
		Reason: admission.ReasonPreempting, Message: admission.MessagePreempting,
		Disruption: corev1.PodReasonTerminationByKubelet, DisruptionMessage: admission.MessageDisrupting,
	})
}
