package podsync

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/plan"
)

// subscribe has the messages of every topic that the dispatcher reads handled in its loop.
func (d *dispatcher) subscribe() error {
	return errors.Join(
		follow(d, topic.PLEGEvent, d.onObservation),
		follow(d, topic.VolumeState, d.onVolumes),
		follow(d, topic.ProbeResult, d.onProbe),
		follow(d, topic.NodeObject, onValue(func(n *corev1.Node) {
			d.facts.SetNode(n)
			d.sync()
		})),
		follow(d, topic.NodeMachine, onValue(func(m *topic.Machine) {
			d.facts.SetMachine(m)
			d.sync()
		})),
		follow(d, topic.NodeRuntime, onValue(d.onRuntime)),
		follow(d, topic.NodePressure, onValue(func(p *topic.Pressure) { d.pressure = *p })),
	)
}

// follow hands the changes of a topic to the loop until ctx ends.
func follow[T any](d *dispatcher, t bus.State[T], handle func(bus.Change[T])) error {
	changes, err := t.Watch(d.ctx, d.bus)
	if err != nil {
		return err
	}
	d.wg.Go(func() {
		for change := range changes {
			select {
			case d.inbox <- func() { handle(change) }:
			case <-d.ctx.Done():
			}
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
	before := d.facts.NetworkProblem()
	d.facts.SetRuntime(r)
	if d.facts.NetworkProblem() == before {
		return
	}
	for _, e := range d.workers {
		e.Wake()
	}
}

func (d *dispatcher) onObservation(change bus.Change[topic.PodObservation]) {
	switch {
	case change.Synced:
		return
	case change.Deleted:
		delete(d.observed, change.Key)
		delete(d.left, change.Key)
		if e := d.workers[change.Key]; e != nil {
			e.Vanished()
		}
	default:
		if left, ok := d.left[change.Key]; ok && !change.Value.NewerThan(left) {
			return
		}
		d.observed[change.Key] = change.Value
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
		delete(d.volumes, change.Key)
		return
	}
	d.volumes[change.Key] = change.Value
	if e := d.workers[change.Key]; e != nil {
		e.Volumes(change.Value)
	}
}

func (d *dispatcher) onProbe(change bus.Change[topic.Probe]) {
	uid, container, kind, ok := probeKey(change.Key)
	if !ok {
		return
	}
	key := plan.ProbeKey{Container: container, Kind: kind}
	if change.Deleted {
		// A worker that has it loses nothing by it: it counts for its container only.
		delete(d.probes[uid], key)
		if len(d.probes[uid]) == 0 {
			delete(d.probes, uid)
		}
		return
	}
	if d.probes[uid] == nil {
		d.probes[uid] = map[plan.ProbeKey]topic.Probe{}
	}
	d.probes[uid][key] = change.Value
	if e := d.workers[uid]; e != nil {
		e.Probe(key, change.Value)
	}
}
