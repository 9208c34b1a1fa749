package podsync

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/podsync/internal/admission"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/node/objects"
	"kubelot.dev/services/podsync/internal/runtime/cgroups"
	"kubelot.dev/services/podsync/internal/runtime/nodecgroups"
	"kubelot.dev/services/podsync/internal/runtime/nodeinfo"
	"kubelot.dev/services/podsync/internal/source"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/metrics"
)

// finishing is how long steps under way may take to end when the daemon stops.
const finishing = 5 * time.Second

// dispatcher is the one owner of who is wanted and who works. All its fields belong to the goroutine of loop, which
// waits for nothing outside of this process: the daemon's beats depend on it. See tasks.slow.
type dispatcher struct {
	cfg     *config.Config
	log     *slog.Logger
	health  daemon.HealthReporter
	pulse   *daemon.Pulse
	report  *events.Reporter
	metrics *metrics.Metrics
	objects *objects.Objects
	node    *nodeinfo.Info
	facts   admission.Facts

	recovery recovery
	launcher launcher
	cgroups  *nodecgroups.Cgroups
	orphans  orphanRemoval
	wanted   wanted
	known    known
	workers  workers
	pacing   pacing
	tasks    *tasks
	// recovered is closed once what an earlier run left is known.
	recovered chan struct{}
}

func newDispatcher(p parts, sources []topic.Source) *dispatcher {
	turns := newTurns()
	d := &dispatcher{
		cfg: p.Config, log: p.Log, health: p.Health, pulse: p.Pulse, report: p.report, metrics: p.metrics,
		objects: p.objects, node: p.node,
		facts:    admissionFacts(p.Config),
		recovery: recovery{runtime: p.clients.Runtime, bus: p.Bus, health: p.Health, log: p.Log},
		launcher: launcher{
			executor: p.newExecutor(turns), crowded: turns.Crowded, settling: p.settling,
			applied: p.cgroups.Applied,
		},
		orphans: orphanRemoval{remover: p.newRemover()},
		wanted:  newWanted(sources, p.report, p.manifestProblem), known: newKnown(), workers: workers{},
		pacing: pacing{trigger: metrics.PodUpdated, gone: map[string]bool{}},
		tasks:  newTasks(p.Bus), recovered: make(chan struct{}),
	}
	d.cgroups = nodecgroups.New(nodecgroups.Config{
		Manager: p.cgroups, Settings: p.Config, Health: p.Health, Report: p.report, Log: p.Log,
		RetryEvery: housekeepingEvery, OnMade: func() { d.pacing.stale = true },
	})
	return d
}

// run runs the dispatcher until ctx ends.
func (d *dispatcher) run(ctx context.Context, sets <-chan source.Set) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	opCtx, stopOps := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopOps(nil)
	d.tasks.ctx, d.tasks.opCtx = ctx, opCtx
	if err := d.recover(ctx); err != nil {
		return err
	}
	close(d.recovered)
	if err := d.subscribe(); err != nil {
		return err
	}
	d.serveEvictions(fail)
	operators{d}.serve()
	d.pulse.Of(ctx, d.tasks.Inbox())
	d.loop(sets)
	timer := time.AfterFunc(finishing, func() { stopOps(fmt.Errorf("podsync stops: %w", context.Cause(ctx))) })
	defer timer.Stop()
	d.tasks.Wait()
	return context.Cause(ctx)
}

func (d *dispatcher) loop(sets <-chan source.Set) {
	housekeeping := time.NewTicker(housekeepingEvery)
	defer housekeeping.Stop()
	later := time.NewTimer(0)
	defer later.Stop()
	for {
		ready := sets
		if d.pacing.syncing.rests(time.Now()) {
			ready = nil
		}
		select {
		case <-d.tasks.ctx.Done():
			return
		case set := <-ready:
			d.take(set)
			ready = nil
		case handle := <-d.tasks.Changes():
			handle()
		case <-later.C:
		case <-housekeeping.C:
			d.tasks.warn(d.log, time.Now())
			d.endOrphans()
			d.pacing.uncounted = true
		}
		d.drain(ready)
		later.Stop()
		if at := d.settle(time.Now()); !at.IsZero() {
			later.Reset(time.Until(at))
		}
	}
}

func (d *dispatcher) take(set source.Set) {
	if set.Err != nil {
		d.log.Warn("can't read a pod source, keeping its last pods", "source", string(set.Source), "error", set.Err)
	}
	if d.wanted.take(set, time.Now()) {
		d.pacing.stale = true
	}
}

// sync makes the workers fit what is wanted.
func (d *dispatcher) sync() {
	if !d.node.Ready() {
		d.health.Set(topic.Degraded, "waiting for the node's facts (node.object, node.machine) before pods are admitted")
		return
	}
	d.cgroups.Ensure(d.tasks.slow, d.node.Capacity(), !d.cgroups.Made())
	if !d.cgroups.Made() {
		d.health.Set(d.cgroups.State())
		return
	}
	d.pacing.round++
	resumeEnds(d)
	if d.wanted.merge.Ready() && !d.orphans.begun {
		endUnwanted(d)
	}
	waiting := takeIn(d)
	d.workers.revive(d.known)
	d.resizes()
	d.wanted.reportMirrors()
	d.wanted.unreported = true
	d.pacing.uncounted = true
	d.cgroups.UpdateQOS(d.tasks.slow, d.workers.requests(), d.wanted.merge.Ready())
	if !d.wanted.merge.Ready() {
		d.health.Set(topic.Healthy, fmt.Sprintf("waiting for the pod sources %v", d.wanted.merge.Waiting()))
		return
	}
	if !d.orphans.begun {
		d.orphans.begun = true
		d.endOrphans()
	}
	if waiting > 0 {
		why := "the Node as the API server has it (node.object, by kubelot-lease)"
		if d.node.Node().UID != "" && !d.known.heard {
			why = "the node's devices (node.resources, by kubelot-resource)"
		}
		d.health.Set(topic.Degraded, fmt.Sprintf("%d pods wait for %s before they are admitted", waiting, why))
		return
	}
	d.health.Set(topic.Healthy, "")
}

// recover takes over what an earlier run left, before anything is started or ended.
func (d *dispatcher) recover(ctx context.Context) error {
	driver, err := d.recovery.cgroupDriver(ctx, d.cfg.Kubelet.CgroupDriver)
	if err != nil {
		return err
	}
	if err := d.cgroups.Manager.UseDriver(driver); err != nil {
		return err
	}
	if d.known.observed, err = d.recovery.observed(ctx); err != nil {
		return err
	}
	d.wanted.mirrors, err = d.recovery.retained(ctx)
	return err
}

// workers are the pods that have a worker, by UID.
type workers map[string]*entry

// removeUnwanted ends the pods that no source wanted in this round. Pods of the API server wait until no source is
// missing. A static pod waits for its own source only: it may be the API server, and the manifest that corrects it its
// successor.
func removeUnwanted(d *dispatcher) {
	missing := d.wanted.merge.Waiting()
	for _, e := range d.workers {
		heard := len(missing) == 0 || e.source != topic.SourceAPI && !slices.Contains(missing, e.source)
		if heard && e.wantedIn != d.pacing.round && !e.removed {
			e.leave()
			d.pacing.trigger = metrics.PodsRemoved
		}
	}
}

// entry is a worker with what the dispatcher last told it.
type entry struct {
	*worker.Worker
	pod      *corev1.Pod      // as its source has it
	held     admission.Held   // with the resources that it holds
	requests cgroups.Requests // of held
	pending  *worker.Pending
	since    time.Time // since when it is put off; zero unless it asks for more
	source   topic.Source
	wantedIn uint64 // the last round of syncs in which a source wanted it
	removed  bool
	admitted bool
	told     bool // the worker knows all of this
	stray    bool // only the runtime knew of it
	replaced bool // a static pod whose successor waits for its release
	released bool // a static pod that holds nothing on the node any more
	shutDown bool // the node's shutdown has ended it
	evicted  bool // pod.evict has
	// yields is how long the pod is waited for whose place others get: it was preempted, or nobody wants it any more. It
	// is zero for any other pod.
	yields time.Time
	// room is what the pod waited for when it got its worker.
	room worker.Room
}

// requests is what the active pods request.
func (w workers) requests() (sum cgroups.Requests) {
	for _, e := range w {
		if e.active() {
			sum.Add(e.requests)
		}
	}
	return sum
}
