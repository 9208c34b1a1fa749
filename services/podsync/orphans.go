package podsync

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/admission"
	"kubelot.dev/services/podsync/internal/node/orphans"
	"kubelot.dev/services/podsync/internal/worker"
)

const (
	// housekeepingEvery is how often orphans are looked for; no pod waits for that.
	housekeepingEvery = 30 * time.Second
	// orphanWork is the key of the look for orphans and of their removal.
	orphanWork = "orphaned cgroups and directories"
)

// endOrphans ends what is on this node and wanted by nobody: pods in the runtime, pods that only the bus remembers,
// cgroups and directories. It does nothing before every source has delivered.
func (d *dispatcher) endOrphans() {
	if !d.node.Ready() {
		return
	}
	d.cgroups.Ensure(d.tasks.slow, d.node.Capacity(), true)
	if !d.orphans.begun {
		return
	}
	endUnwanted(d)
	d.recovery.forget()
	d.orphans.begin(d.tasks, d.wantedAndObserved, func() { d.pacing.stale = true })
	d.cgroups.UpdateQOS(d.tasks.slow, d.workers.requests(), d.wanted.merge.Ready())
}

// endUnwanted ends the pods that the runtime or the bus has and nobody wants, once every source has delivered.
func endUnwanted(d *dispatcher) {
	wanted, _ := d.wantedAndObserved()
	for uid, obs := range d.known.observed {
		if !wanted[types.UID(uid)] {
			d.endOrphan(uid, obs)
		}
	}
	for uid, before := range d.recovery.pods {
		if !wanted[types.UID(uid)] && d.workers[uid] == nil {
			d.endOrphan(uid, topic.PodObservation{Ref: topic.RefOf(before.Pod)})
		}
	}
}

// wantedAndObserved are the pods that a source wants or that have a worker, and those that the runtime has.
func (d *dispatcher) wantedAndObserved() (wanted, observed map[types.UID]bool) {
	wanted, observed = d.wanted.uids(), map[types.UID]bool{}
	for uid := range d.workers {
		wanted[types.UID(uid)] = true
	}
	for uid := range d.known.observed {
		observed[types.UID(uid)] = true
	}
	return wanted, observed
}

// endOrphan gives a pod that nobody wants a worker that ends it.
func (d *dispatcher) endOrphan(uid string, obs topic.PodObservation) {
	e := takeUp(d, uid, obs)
	d.log.Info("ending a pod that no source wants", "pod", e.pod.Name, "namespace", e.pod.Namespace, "uid", uid)
	e.leave()
}

// resumeEnds goes on ending the pods whose end an earlier run has begun: their deadlines hold and others wait for them,
// also while their source is away. Of a preempted pod the bus may have its status, and not yet that it ends.
func resumeEnds(d *dispatcher) {
	for uid, before := range d.recovery.pods {
		preempted := d.recovery.statuses[uid].Status.Reason == admission.ReasonPreempting
		ends := before.Lifecycle != topic.Terminated && (preempted || before.Deadline != nil)
		if !ends || before.Pod == nil || d.workers[uid] != nil {
			continue
		}
		d.log.Info("going on with the end of a pod that began before the restart", "pod", before.Pod.Name, "namespace",
			before.Pod.Namespace, "uid", uid)
		if e := takeUp(d, uid, d.known.observed[uid]); preempted {
			e.preempt()
		}
	}
}

// takeUp gives a pod of an earlier run a worker that no source has delivered.
func takeUp(d *dispatcher, uid string, obs topic.PodObservation) *entry {
	cfg := worker.Config{Source: topic.SourceAPI, FirstSeen: time.Now(), Pod: orphans.Skeleton(obs)}
	if before, ok := d.recovery.pods[uid]; ok && before.Pod != nil {
		cfg.Pod, cfg.Source, cfg.Restored, cfg.FirstSeen = before.Pod, before.Source, &before, before.FirstSeen
		cfg.Previous, cfg.Allocates = d.recovery.statuses[uid].Status, before.Allocates
	}
	e := d.launch(cfg, obs)
	if cfg.Restored == nil {
		d.metrics.Orphaned()
		e.stray = true
	}
	return e
}

// orphanRemoval removes the cgroups and directories of pods that are gone. Its fields belong to the loop.
type orphanRemoval struct {
	remover *orphans.Remover

	begun    bool               // all sources have delivered once
	removing map[types.UID]bool // what is being removed; nil for nothing
}

// begin looks for what is left of pods that known doesn't report, and removes it; done is called after something was
// removed. known is called when the look has ended: what has come meanwhile is spared. Nothing waits for the removal
// but a pod that comes (again) with a UID that is being removed.
func (o *orphanRemoval) begin(t *tasks, known func() (wanted, observed map[types.UID]bool), done func()) {
	t.slow(orphanWork, func() func() {
		found := o.remover.Find()
		return func() { o.remove(t, found.Except(known()), done) }
	})
}

func (o *orphanRemoval) remove(t *tasks, found orphans.Leftovers, done func()) {
	uids := found.UIDs()
	if len(uids) == 0 {
		return
	}
	o.removing = uids
	t.slow(orphanWork, func() func() {
		o.remover.Remove(t.ctx, found)
		return func() {
			o.removing = nil
			done()
		}
	})
}
