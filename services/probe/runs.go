package probe

import (
	"cmp"
	"slices"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/probe/internal/check"
)

// transitTime is how long a pod counts as starting or stopping at most.
const transitTime = time.Minute

// next begins the runs that are due, as far as their bounds allow, and tells when to look again if nothing else happens.
func (t *tracker) next(now time.Time) ([]*probe, time.Time) {
	var begin []*probe
	type candidate struct {
		*probe
		class class
	}
	var due []candidate
	transit, wake := t.transit(now), t.lagging(now)
	for _, p := range t.pods {
		for _, probe := range p.probes {
			switch {
			case t.under[probe]:
			case probe.due.After(now):
				wake = earlier(wake, probe.due)
			default:
				due = append(due, candidate{probe, p.classOf(probe, now)})
			}
		}
	}
	slices.SortFunc(due, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.class, b.class), a.due.Compare(b.due), cmp.Compare(a.id+a.kind, b.id+b.kind))
	})
	for _, c := range due {
		l := t.lane(c.probe)
		if !l.admits(c.class, transit, now) {
			if l.rest.After(now) {
				wake = earlier(wake, l.rest)
			}
			continue
		}
		l.quick++
		c.slow, c.began = false, now
		t.under[c.probe] = true
		wake = earlier(wake, now.Add(slowAfter))
		begin = append(begin, c.probe)
	}
	return begin, wake
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (t *tracker) lane(p *probe) *lane {
	if p.exec() {
		return &t.exec
	}
	return &t.network
}

// transit tells whether a pod starts or stops.
func (t *tracker) transit(now time.Time) bool {
	for _, p := range t.pods {
		if !p.transit.IsZero() && now.Sub(p.transit) < transitTime {
			return true
		}
	}
	return false
}

// lagging lets others run beside the runs that take long, and tells when the next one does.
func (t *tracker) lagging(now time.Time) (next time.Time) {
	for p := range t.under {
		switch at := p.began.Add(slowAfter); {
		case p.slow:
		case at.After(now):
			next = earlier(next, at)
		default:
			p.slow = true
			t.lane(p).quick--
		}
	}
	return next
}

// done takes a run's end; err means that the probe could not be run. It tells whether the end counts: it doesn't once
// the probe has stopped meanwhile.
func (t *tracker) done(now time.Time, p *probe, result check.Result, err error) bool {
	t.lane(p).end(p.slow, t.transit(now), now.Sub(p.began), now)
	delete(t.under, p)
	if !t.has(p) {
		return false
	}
	owner := t.pods[p.ref.UID]
	if err != nil {
		return t.failed(now, p, err)
	}
	p.errors = 0
	p.due = p.schedule.next(p.began, now)
	t.tell(p, result)
	p.count = p.count.Next(result.Success)
	if p.count.Reached(p.spec) {
		if old, known := owner.verdict(p.target); !known || old.Success != result.Success {
			t.decide(owner, p.target, topic.Probe{ContainerID: p.id, Success: result.Success, Message: result.Output, Since: now})
			t.refresh(now, owner)
		}
	}
	return true
}

// has tells whether the probe still is to run.
func (t *tracker) has(p *probe) bool {
	owner := t.pods[p.ref.UID]
	return owner != nil && owner.probes[p.slot] == p
}
