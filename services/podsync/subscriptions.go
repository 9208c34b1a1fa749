package podsync

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
	"kubelot.dev/daemon/loop"
)

// known is what other daemons last said of each pod, by UID.
type known struct {
	observed map[string]topic.PodObservation
	volumes  map[string]topic.PodVolumes
	probes   map[string]map[topic.ProbeKey]topic.Probe
	allocations
	// left are pods that are gone while pleg still has them: readings from before are of that life.
	left map[string]topic.PodObservation
	// cancelled is true where the node was told to shut down and no longer is.
	cancelled bool
}

func newKnown() known {
	return known{
		observed: map[string]topic.PodObservation{}, volumes: map[string]topic.PodVolumes{},
		probes: map[string]map[topic.ProbeKey]topic.Probe{}, left: map[string]topic.PodObservation{},
		allocations: allocations{allocated: map[string]topic.Allocation{}},
	}
}

// forget drops what was said of a pod that is gone. A static pod that comes again under its UID has another life.
func (k *known) forget(uid string) {
	delete(k.volumes, uid)
	delete(k.allocated, uid)
	if _, observed := k.observed[uid]; observed {
		delete(k.observed, uid)
		k.left[uid] = observe.Now()
	}
}

// subscribe has the messages of every topic that the dispatcher reads handled in its loop.
func (d *dispatcher) subscribe() error {
	tellCIDRs := d.recovery.runtime.PodCIDRs(d.log)
	return errors.Join(
		follow(d, topic.PLEGEvent, d.onObservation),
		follow(d, topic.VolumeState, d.onVolumes),
		follow(d, topic.ProbeResult, d.onProbe),
		follow(d, topic.PodAllocation, func(c bus.Change[topic.Allocation]) { d.known.take(c, d.workers) }),
		follow(d, topic.ResourcesOfNode, onValue(func(r *topic.NodeResources) {
			d.facts.Devices = r.Devices
			d.pacing.stale = d.known.takeNode(r, d.node, d.workers) || d.pacing.stale
		})),
		follow(d, topic.NodeObject, onValue(func(n *corev1.Node) {
			d.node.SetNode(n)
			d.pacing.stale = true
			d.tasks.Go(func() { tellCIDRs(d.tasks.ctx, n.Spec.PodCIDRs) })
		})),
		followSlowly(d, topic.NodeMachine, func(change bus.Change[topic.Machine]) (answer func()) {
			onValue(d.node.SetMachine)(change) // reads sysfs
			return func() { d.pacing.stale = true }
		}),
		follow(d, topic.NodeRuntime, onValue(d.onRuntime)),
		follow(d, topic.NodePressure, onValue(func(p *topic.Pressure) { d.facts.Pressure = *p })),
		follow(d, topic.NodeShutdown, onValue(func(s *topic.Shutdown) {
			d.facts.ShuttingDown, d.known.cancelled = s.Active, !s.Active
			d.workers.revive(d.known)
		})),
	)
}

// follow hands the changes of a topic to the loop until ctx ends.
func follow[T any](d *dispatcher, t bus.State[T], handle func(bus.Change[T])) error {
	return loop.Follow(d.tasks.ctx, d.tasks.Loop, t, handle)
}

// followSlowly has prepare see the changes of a topic until ctx ends, and the loop run its answers. prepare may wait
// for a disk: the topic has a goroutine of its own.
func followSlowly[T any](d *dispatcher, t bus.State[T], prepare func(bus.Change[T]) (answer func())) error {
	changes, err := t.Watch(d.tasks.ctx, d.recovery.bus)
	if err != nil {
		return err
	}
	d.tasks.Go(func() {
		for change := range changes {
			d.tasks.Do(d.tasks.ctx, prepare(change))
		}
	})
	return nil
}

// onValue is for topics with one value, which is never taken back.
func onValue[T any](set func(*T)) func(bus.Change[T]) {
	return func(change bus.Change[T]) {
		if !change.Synced && !change.Deleted {
			set(&change.Value)
		}
	}
}

// onRuntime has pods that wait for the network go on as soon as it is there.
func (d *dispatcher) onRuntime(r *topic.Runtime) {
	before := d.node.NetworkProblem()
	d.node.SetRuntime(r)
	if d.node.NetworkProblem() == before {
		return
	}
	for _, e := range d.workers {
		e.Wake()
	}
}

// revive ends the static pods that a cancelled shutdown has ended or refused. Nobody else makes them anew: they begin
// another life under their UID.
func (w workers) revive(k known) {
	if !k.cancelled {
		return
	}
	for _, e := range w {
		if e.source != topic.SourceAPI && e.shutDown && !e.removed {
			e.shutDown, e.removed = false, true
			e.Remove()
		}
	}
}

func (d *dispatcher) onObservation(change bus.Change[topic.PodObservation]) {
	switch {
	case change.Synced:
		return
	case change.Deleted:
		delete(d.known.observed, change.Key)
		delete(d.known.left, change.Key)
		if e := d.workers[change.Key]; e != nil {
			e.Vanished()
		}
	default:
		if left, ok := d.known.left[change.Key]; ok && !change.Value.NewerThan(left) {
			return
		}
		d.known.observed[change.Key] = change.Value
		if e := d.workers[change.Key]; e != nil {
			e.Observe(change.Value)
		}
	}
}

func (d *dispatcher) onVolumes(change bus.Change[topic.PodVolumes]) {
	if change.Synced {
		return
	}
	if change.Deleted {
		delete(d.known.volumes, change.Key)
		return
	}
	d.known.volumes[change.Key] = change.Value
	if e := d.workers[change.Key]; e != nil {
		e.Volumes(change.Value)
	}
}

func (d *dispatcher) onProbe(change bus.Change[topic.Probe]) {
	key, ok := topic.ParseProbeKey(change.Key)
	if !ok {
		return
	}
	uid := key.UID
	if change.Deleted {
		// A worker that has it loses nothing by it: it counts for its container only.
		delete(d.known.probes[uid], key)
		if len(d.known.probes[uid]) == 0 {
			delete(d.known.probes, uid)
		}
		return
	}
	if d.known.probes[uid] == nil {
		d.known.probes[uid] = map[topic.ProbeKey]topic.Probe{}
	}
	d.known.probes[uid][key] = change.Value
	if e := d.workers[uid]; e != nil {
		e.Probe(key, change.Value)
	}
}
