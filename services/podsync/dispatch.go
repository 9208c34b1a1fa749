package podsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/podsync/internal/cgroups"
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/source"
	"kubelot.dev/services/podsync/internal/worker"
)

// finishing is how long steps under way may take to end when the daemon stops.
const finishing = 5 * time.Second

// dispatcher is the one owner of who is wanted and who works. All its fields belong to the goroutine of loop.
type dispatcher struct {
	*Service
	merge    *source.Merge
	desired  source.Desired
	workers  map[string]*entry
	mirrors  map[string]bool
	observed map[string]topic.PodObservation
	volumes  map[string]topic.PodVolumes
	probes   map[string]map[plan.ProbeKey]topic.Probe
	// left are pods that are gone while pleg still has them: readings from before are of that life.
	left     map[string]topic.PodObservation
	sweeping map[types.UID]bool // what is being removed of pods that nobody knows; nil for nothing
	pressure topic.Pressure
	// before is what the bus still had from an earlier run of this daemon.
	before  map[string]topic.Pod
	status  map[string]topic.PodStatus
	rank    atomic.Uint64
	seen    bool   // all sources have delivered once
	tree    bool   // the node's cgroups are there with their limits
	qosErr  error  // why the QoS classes' CPU shares couldn't be set last
	trigger string // what may have made room for resizes
	// conflicts are those that were told of.
	conflicts map[source.Problem]bool

	ctx, opCtx context.Context
	wg         sync.WaitGroup
	ended      chan string
	inbox      chan func()
}

// entry is a worker with what the dispatcher last told it.
type entry struct {
	*worker.Worker
	pod      *corev1.Pod // as its source has it
	held     *corev1.Pod // with the resources that it holds
	pending  *worker.Pending
	since    time.Time // since when it is put off; zero unless it asks for more
	source   topic.Source
	removed  bool
	admitted bool
	told     bool // the worker knows all of this
	stray    bool // only the runtime knew of it
}

// dispatch runs the dispatcher until ctx ends.
func (s *Service) dispatch(ctx context.Context, sets <-chan source.Set) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	opCtx, stopOps := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopOps(nil)
	d := &dispatcher{
		Service: s, merge: source.NewMerge(s.sourceNames()...), workers: map[string]*entry{}, mirrors: map[string]bool{},
		observed: map[string]topic.PodObservation{}, volumes: map[string]topic.PodVolumes{},
		probes: map[string]map[plan.ProbeKey]topic.Probe{},
		left:   map[string]topic.PodObservation{},
		ctx:    ctx, opCtx: opCtx, ended: make(chan string), inbox: make(chan func()), trigger: triggerUpdated,
	}
	if err := d.takeStock(ctx); err != nil {
		return err
	}
	if err := d.subscribe(); err != nil { //nolint:contextcheck // the dispatcher keeps the context it was started with
		return err
	}
	d.serveEvictions(fail)
	s.pulse.Of(ctx, d.inbox)
	d.loop(sets) //nolint:contextcheck // the same
	timer := time.AfterFunc(finishing, func() { stopOps(fmt.Errorf("podsync stops: %w", context.Cause(ctx))) })
	defer timer.Stop()
	d.wg.Wait()
	return context.Cause(ctx)
}

func (d *dispatcher) loop(sets <-chan source.Set) {
	housekeeping := time.NewTicker(housekeepingEvery)
	defer housekeeping.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case set := <-sets:
			d.take(set)
		case handle := <-d.inbox:
			handle()
		case uid := <-d.ended:
			d.reap(uid)
		case <-housekeeping.C:
			d.orphans()
			d.meter.Count(d.census())
		}
	}
}

func (d *dispatcher) take(set source.Set) {
	if set.Err != nil {
		d.log.Warn("pod source can't be read; its last pods stay wanted", "source", string(set.Source), "error", set.Err)
	}
	if d.merge.Set(set, time.Now()) {
		d.desired = d.merge.Desired()
		d.tellConflicts()
		d.sync()
	}
}

// tellConflicts tells once of each pod that has the name of another.
func (d *dispatcher) tellConflicts() {
	now := map[source.Problem]bool{}
	for _, p := range d.desired.Conflicts {
		now[p] = true
		if !d.conflicts[p] {
			d.manifestProblem(p)
		}
	}
	d.conflicts = now
}

// sync makes the workers fit what is wanted.
func (d *dispatcher) sync() {
	if !d.facts.Ready() {
		d.health.Set(topic.Degraded, "waiting for the node's facts (node.object, node.machine) before pods are admitted")
		return
	}
	if err := d.ensureTree(); err != nil {
		d.health.Set(topic.Unhealthy, err.Error())
		return
	}
	wanted, waiting := map[string]bool{}, 0
	for i := range d.desired.Pods {
		p := &d.desired.Pods[i]
		uid := string(p.Pod.UID)
		wanted[uid] = true
		if e := d.workers[uid]; e != nil {
			d.renew(e, p)
			continue
		}
		if !d.admit(p) {
			waiting++
		}
	}
	d.resizes()
	d.reportSources(wanted)
	defer func() { d.meter.Count(d.census()) }()
	d.updateQOS()
	if !d.merge.Ready() {
		d.health.Set(topic.Healthy, fmt.Sprintf("waiting for the pod sources %v", d.merge.Waiting()))
		return
	}
	for uid, e := range d.workers {
		if !wanted[uid] && !e.removed {
			e.removed = true
			e.Remove()
		}
	}
	if !d.seen {
		d.seen = true
		d.orphans()
	}
	if waiting > 0 {
		d.health.Set(topic.Degraded, fmt.Sprintf("%d pods wait for the Node as the API server has it (node.object, by kubelot-lease) before they are admitted", waiting))
		return
	}
	d.health.Set(topic.Healthy, "")
}

// ensureTree makes the node's cgroups once the node's capacity is known. Limits that can't be set, such as one below what
// pods use already, don't keep pods from running: they are tried again with the next housekeeping.
func (d *dispatcher) ensureTree() error {
	if d.tree {
		return nil
	}
	limits := cgroups.NodeLimits(d.facts.Capacity(), config.Reserved(&d.cfg.Kubelet))
	err := d.cgroups.EnsureNode(limits)
	if err == nil {
		err = d.holdReserved()
	}
	var soft *cgroups.LimitsError
	if errors.As(err, &soft) {
		d.log.Warn("the limits of the node's cgroups can't be set; trying again", "error", err, "retry_in", housekeepingEvery)
		return nil
	}
	if err != nil {
		return fmt.Errorf("set up the node's cgroups: %w", err)
	}
	d.tree = true
	return nil
}

// holdReserved holds what runs beside pods to what is reserved for it. What can't be held doesn't keep pods from running.
func (d *dispatcher) holdReserved() error {
	for _, r := range reservedCgroups(d.cfg) {
		if err := d.cgroups.Hold(r); err != nil {
			return &cgroups.LimitsError{Cgroup: r.Cgroup, Err: err}
		}
	}
	return nil
}

// reportSources states which pods are wanted, and the mirror pods that the API server has.
func (d *dispatcher) reportSources(wanted map[string]bool) {
	s := topic.Sources{Ready: d.merge.Ready(), Waiting: d.merge.Waiting()}
	for i := range d.desired.Pods {
		s.Pods = append(s.Pods, string(d.desired.Pods[i].Pod.UID))
	}
	mirrors := map[string]bool{}
	for _, m := range d.desired.Mirrors {
		mirrors[m.UID] = true
		d.report.Mirror(m)
	}
	for uid := range d.mirrors {
		if !mirrors[uid] {
			d.report.MirrorGone(uid)
		}
	}
	d.mirrors = mirrors
	d.report.Sources(s)
}
