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

// next begins the runs that are due, as far as their bounds allow, and tells when to look again if nothing else happens. Probes that
// aren't due cost nothing, nor do those that are while no more may begin.
func (t *tracker) next(now time.Time) ([]*probe, time.Time) {
	wake := t.lagging(now)
	due, next := t.agenda.until(now)
	for _, p := range due {
		t.lane(p).add(p)
	}
	if !next.IsZero() {
		wake = earlier(wake, next)
	}
	var begin []*probe
	transit := t.transit(now)
	for _, l := range []*lane{&t.exec, &t.network} {
		for p := l.first(now); p != nil; p = l.first(now) {
			if !l.admits(p.class, transit, now) {
				if l.rest.After(now) {
					wake = earlier(wake, l.rest)
				}
				break
			}
			l.remove(p)
			l.quick++
			p.slow, p.began = false, now
			t.under[p] = true
			wake = earlier(wake, now.Add(slowAfter))
			begin = append(begin, p)
		}
	}
	slices.SortFunc(begin, order)
	return begin, wake
}

// order compares by who is to run first.
func order(a, b *probe) int {
	return cmp.Or(cmp.Compare(a.class, b.class), a.due.Compare(b.due), cmp.Compare(a.id, b.id), cmp.Compare(a.kind, b.kind))
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
	for _, p := range t.moving {
		if now.Sub(p.transit) < transitTime {
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
	defer func() {
		if t.has(p) {
			t.agenda.add(p)
		}
	}()
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
