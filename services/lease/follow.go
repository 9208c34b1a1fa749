package lease

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
)

const (
	// addressesPeriod is how often the machine's addresses are looked up again, and addressesRetry after a failure.
	addressesPeriod = time.Minute
	addressesRetry  = time.Second
)

// follow has the loop handle the changes of the topics, of the machine's addresses and of the Node at the API server.
func (s *Service) follow(ctx context.Context) error {
	s.loop.Go(func() { s.followAddresses(ctx) })
	if s.api != nil {
		s.loop.Go(func() {
			for c := range s.api.WatchNode(ctx, s.env.Config.NodeName) {
				s.loop.Do(ctx, func() { s.seen(c) })
			}
		})
	}
	return errors.Join(
		follow(ctx, s, topic.NodeMachine, func(_ string, m *topic.Machine) { s.facts.Machine = cmp.Or(m, s.facts.Machine) }),
		follow(ctx, s, topic.NodePressure, func(_ string, p *topic.Pressure) { s.facts.Pressure = p }),
		follow(ctx, s, topic.NodeShutdown, func(_ string, v *topic.Shutdown) { s.facts.Shutdown = v }),
		follow(ctx, s, topic.NodeRuntime, func(_ string, r *topic.Runtime) { s.setRuntime(r, time.Now()) }),
		follow(ctx, s, topic.Health, s.setHealth),
		follow(ctx, s, topic.CSIDriver, func(key string, info *topic.CSINodeInfo) {
			s.facts.CSI.set(key, info)
			s.csiNode.changed = true
		}),
		follow(ctx, s, topic.CSIVolumes, func(_ string, v *topic.VolumesInUse) {
			s.facts.CSI.InUse = cmp.Or(v, s.facts.CSI.InUse)
		}),
		follow(ctx, s, topic.ResourcesOfNode, func(_ string, r *topic.NodeResources) {
			s.facts.Devices = cmp.Or(r, s.facts.Devices)
		}),
		follow(ctx, s, topic.PluginRegistered, func(key string, p *topic.Plugin) {
			delete(s.facts.Plugins, key)
			if p != nil && p.Type != topic.CSIPlugin {
				s.facts.Plugins[key] = true
			}
		}),
		loop.Follow(ctx, s.loop, topic.NodeObject, s.bus.set),
	)
}

// follow hands the changes of a topic to the loop; a removed value is nil. Until the bus has told what it retains of
// the topic, the topic is unread.
func follow[T any](ctx context.Context, s *Service, t bus.State[T], set func(key string, v *T)) error {
	s.unread++
	read := false
	return loop.Follow(ctx, s.loop, t, func(c bus.Change[T]) {
		switch {
		case c.Synced && !read:
			read = true
			if s.unread--; s.unread == 0 {
				s.facts.Listening = time.Now()
			}
		case c.Synced:
		case c.Deleted:
			set(c.Key, nil)
		default:
			set(c.Key, &c.Value)
		}
	})
}

func (s *Service) setHealth(daemon string, h *topic.DaemonHealth) {
	if h == nil {
		delete(s.facts.Health, daemon)
		delete(s.words, daemon)
		return
	}
	s.heard(daemon, *h, time.Now())
}

// heard notes what a daemon says of itself. From its second word on the ages of its beat and of its state are reckoned
// from when they were heard, by the clock that nobody sets: a daemon must not seem silent, alive or ill for long
// because the time of day was changed.
func (s *Service) heard(daemon string, h topic.DaemonHealth, now time.Time) {
	before, known := s.words[daemon]
	s.words[daemon] = h
	if last := s.facts.Health[daemon]; known {
		h.Beat = heardAt(h.Beat, before.Beat, last.Beat, now)
		h.Since = heardAt(h.Since, before.Since, last.Since, now)
	}
	if silent(s.facts.Health, now) && !h.Silent(now) {
		// The bus was away. This is the first daemon that is heard again, and the others' last words are as old.
		s.facts.Listening = now
	}
	s.facts.Health[daemon] = h
}

// heardAt is when a time was first heard of, if that was at last where it is the same time as before, else now.
func heardAt(t, before, last, now time.Time) time.Time {
	if t.Equal(before) {
		return last
	}
	return now
}

// setRuntime notes since when the runtime is down.
func (s *Service) setRuntime(r *topic.Runtime, now time.Time) {
	s.facts.Runtime = r
	switch {
	case r != nil && r.Reachable && r.RuntimeReady.Status:
		s.facts.RuntimeDown = time.Time{}
	case s.facts.RuntimeDown.IsZero():
		s.facts.RuntimeDown = now
	}
}

// retained is what the bus has of node.object, from this process or an earlier one.
type retained struct {
	// read is true once the bus has told, claimed while it has a Node that came from the API server.
	read, claimed bool
}

// set takes in what this daemon itself has put on the bus.
func (r *retained) set(c bus.Change[corev1.Node]) {
	if c.Synced {
		r.read = true
		return
	}
	r.claimed = !c.Deleted && c.Value.UID != ""
}

// followAddresses looks up the addresses, which may take a DNS server's time.
func (s *Service) followAddresses(ctx context.Context) {
	failed := false
	for ctx.Err() == nil {
		delay := addressesPeriod
		addresses, err := findAddresses(ctx, s.env.Config, s.host)
		if err != nil {
			delay = addressesRetry
			if !failed && ctx.Err() == nil {
				s.env.Log.Warn("the node has no address yet, retrying the lookup", "error", err)
			}
		}
		failed = err != nil
		s.loop.Do(ctx, func() {
			s.looked = true
			if err == nil {
				s.facts.Addresses = addresses
			}
		})
		pause.For(ctx, delay)
	}
}
