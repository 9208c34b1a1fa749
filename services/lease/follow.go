package lease

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

const (
	// addressesPeriod is how often the machine's addresses are looked up again, and addressesRetry after a failure.
	addressesPeriod = time.Minute
	addressesRetry  = time.Second
)

// follow reads the topics and the machine's addresses into one channel of steps.
func (s *Service) follow(ctx context.Context) (<-chan func(*Service), error) {
	f := follower{ctx: ctx, service: s, out: make(chan func(*Service))}
	watch(&f, topic.NodeMachine, func(s *Service, _ string, m *topic.Machine) {
		if m != nil {
			s.facts.Machine = m
		}
	})
	watch(&f, topic.NodePressure, func(s *Service, _ string, p *topic.Pressure) { s.facts.Pressure = p })
	watch(&f, topic.NodeRuntime, func(s *Service, _ string, r *topic.Runtime) { s.setRuntime(r, time.Now()) })
	watch(&f, topic.Health, func(s *Service, daemon string, h *topic.DaemonHealth) {
		if h == nil {
			delete(s.facts.Health, daemon)
			delete(s.beats, daemon)
			return
		}
		s.heard(daemon, *h, time.Now())
	})
	f.followOwn()
	if f.err != nil {
		return nil, f.err
	}
	s.wg.Go(func() { s.followAddresses(ctx, f.out) })
	return f.out, nil
}

// heard notes what a daemon says of itself. From its second beat on its age is reckoned from when it was heard, by the clock that
// nobody sets: a daemon must not seem silent, or alive, because the time of day was changed.
func (s *Service) heard(daemon string, h topic.DaemonHealth, now time.Time) {
	beat, before := h.Beat, s.beats[daemon]
	switch {
	case before.Equal(beat):
		h.Beat = s.facts.Health[daemon].Beat
	case !before.IsZero():
		h.Beat = now
	}
	s.beats[daemon], s.facts.Health[daemon] = beat, h
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

type follower struct {
	ctx     context.Context
	service *Service
	out     chan func(*Service)
	err     error
}

// watch turns a topic's changes into steps; a removed value is nil.
func watch[T any](f *follower, t bus.State[T], set func(s *Service, key string, v *T)) {
	if f.err != nil {
		return
	}
	in, err := t.Watch(f.ctx, f.service.env.Bus)
	if err != nil {
		f.err = fmt.Errorf("read %s: %w", t.Name(), err)
		return
	}
	f.service.wg.Go(func() {
		for c := range in {
			if c.Synced {
				continue
			}
			step := func(s *Service) { set(s, c.Key, &c.Value) }
			if c.Deleted {
				step = func(s *Service) { set(s, c.Key, nil) }
			}
			select {
			case f.out <- step:
			case <-f.ctx.Done():
			}
		}
	})
}

// retained is what the bus has of node.object, from this process or an earlier one.
type retained struct {
	// read is true once the bus has told, claimed while it has a Node that came from the API server.
	read, claimed bool
}

// followOwn reads what this daemon itself has put on the bus.
func (f *follower) followOwn() {
	if f.err != nil {
		return
	}
	in, err := topic.NodeObject.Watch(f.ctx, f.service.env.Bus)
	if err != nil {
		f.err = fmt.Errorf("read %s: %w", topic.NodeObject.Name(), err)
		return
	}
	f.service.wg.Go(func() {
		for c := range in {
			step := func(s *Service) { s.bus.claimed = !c.Deleted && c.Value.UID != "" }
			if c.Synced {
				step = func(s *Service) { s.bus.read = true }
			}
			select {
			case f.out <- step:
			case <-f.ctx.Done():
			}
		}
	})
}

// followAddresses looks up the addresses, which may take a DNS server's time.
func (s *Service) followAddresses(ctx context.Context, out chan<- func(*Service)) {
	failed := false
	for {
		delay := addressesPeriod
		addresses, err := findAddresses(ctx, s.env.Config, s.host)
		if err != nil {
			delay = addressesRetry
			if !failed && ctx.Err() == nil {
				s.env.Log.Warn("the node has no address yet; the lookup is tried again", "error", err)
			}
		}
		failed = err != nil
		select {
		case out <- func(s *Service) { s.setAddresses(addresses, err) }:
		case <-ctx.Done():
			return
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (s *Service) setAddresses(addresses []corev1.NodeAddress, err error) {
	s.looked = true
	if err == nil {
		s.facts.Addresses = addresses
	}
}
