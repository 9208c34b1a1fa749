package resource

import (
	"context"
	"errors"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/sleep"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/fault"
	"kubelot.dev/services/resource/internal/memory"
	"kubelot.dev/services/resource/internal/numa"
)

// sleepAfter is how long nothing must have needed the daemon before it sleeps.
const sleepAfter = time.Minute

// lookEvery is how often it is looked whether the daemon is still needed: not all that needs it tells when that ends.
const lookEvery = 10 * time.Second

// sleepsBecause is what people see of a daemon that sleeps.
const sleepsBecause = "nothing on this node needs devices, CPUs or memory of its own"

// sleeper is *sleep.Sleeper.
type sleeper interface {
	Able() bool
	Set(ctx context.Context) error
	Unset()
	Sleep(why string) error
}

// nap knows when the daemon is to sleep.
type nap struct {
	sleeper sleeper
	// kept is true where the configuration needs the daemon at all times.
	kept bool
	// since is when it was needed last; zero while it is.
	since time.Time
}

// keeps reports whether the configuration of CPUs, memory and topology needs the daemon at all times: a policy is on,
// or something is wrong with it, which the daemon's health says.
func keeps(h *holdings, faults []fault.Fault) bool {
	return len(faults) > 0 || h.policies.cpu != cpus.PolicyNone || h.policies.memory != memory.PolicyNone ||
		h.policy.Name() != numa.PolicyNone
}

// look has the daemon sleep if nothing has needed it for long enough, and returns when to look again; zero for
// never. needed is asked whether something needs the daemon now.
func (n *nap) look(ctx context.Context, needed func() bool, now time.Time) time.Time {
	if n.sleeper == nil || !n.sleeper.Able() || n.kept {
		return time.Time{}
	}
	if needed() {
		n.since = time.Time{}
		n.sleeper.Unset()
		return now.Add(lookEvery)
	}
	if n.since.IsZero() {
		n.since = now
	}
	at := n.since.Add(sleepAfter)
	if alarm := at.Add(-sleep.Drowsy); now.Before(alarm) {
		return alarm
	}
	if n.sleeper.Set(ctx) != nil {
		return time.Time{}
	}
	if now.Before(at) {
		return at
	}
	if errors.Is(n.sleeper.Sleep(sleepsBecause), sleep.ErrLater) {
		n.since = now
		n.sleeper.Unset()
		return now.Add(sleepAfter - sleep.Drowsy)
	}
	return time.Time{}
}

// needed reports whether something needs the daemon now.
func needed(s *Service) bool {
	// The cheap questions come first: it is asked in each turn of the loop.
	return len(s.pods)+len(s.going) > 0 || unclear(s) || !s.announce.Idle() || s.claims != nil && !s.claims.Idle() ||
		plugged(s.registered) || s.store.Busy() || len(s.holdings.pods()) > 0 ||
		len(s.holdings.devices.Export().RegisteredDevices) > 0
}

// unclear reports whether something isn't known yet that is needed to tell. In a cluster that is also that the Node has
// no devices of an earlier agent any more.
func unclear(s *Service) bool {
	k := s.known
	return !k.pods || !k.plugins || !k.settled || !s.sources.Ready ||
		s.claims != nil && (!k.counted || s.holdings.untold || len(s.publisher.leftover) > 0)
}

// plugged reports whether a plugin is registered that the daemon calls.
func plugged(registered map[string]topic.Plugin) bool {
	for _, p := range registered {
		if p.Type == topic.DevicePlugin || p.Type == topic.DRAPlugin {
			return true
		}
	}
	return false
}
