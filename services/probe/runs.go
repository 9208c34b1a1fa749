package probe

import (
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/probe/internal/check"
)

// transitTime is how long a pod counts as starting or stopping at most.
const transitTime = time.Minute

// next begins the runs that are due, as far as their bounds allow, and returns when to look again if nothing else
// happens. A probe costs nothing while it isn't due, or while no more runs may begin.
func (t *tracker) next(now time.Time) ([]*probe, time.Time) {
	for p, ok := t.agenda.Take(now); ok; p, ok = t.agenda.Take(now) {
		t.limiter(p).add(p, p.owner.classOf(p))
	}
	wake := t.agenda.Next()
	var begin []*probe
	t.rest(now)
	transit := t.transit()
	for _, l := range []*limiter{&t.exec, &t.network} {
		l.release(now)
		l.promoteLate(now)
		for p := l.first(); p != nil; p = l.first() {
			if !l.admits(p.class, transit, now) {
				if l.rest.After(now) {
					wake = earlier(wake, l.rest)
				}
				if at := l.counting.Next(); !at.IsZero() {
					wake = earlier(wake, at)
				}
				break
			}
			l.begin(p, now)
			t.under[p] = true
			begin = append(begin, p)
		}
	}
	return begun(begin), wake
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (t *tracker) limiter(p *probe) *limiter {
	if p.exec() {
		return &t.exec
	}
	return &t.network
}

// transit reports whether a pod starts or stops.
func (t *tracker) transit() bool { return t.moving.Len() > 0 }

// rest no longer counts pods as starting or stopping that have done so for long.
func (t *tracker) rest(now time.Time) {
	for _, ok := t.moving.Take(now); ok; _, ok = t.moving.Take(now) {
	}
}

// done takes a run's end; err means that the probe could not be run. counts is false for a run that has no result, and
// for a probe that has stopped meanwhile.
func (t *tracker) done(now time.Time, p *probe, result check.Result, err error) (counts bool) {
	t.rest(now)
	t.limiter(p).end(p, t.transit(), now.Sub(p.began), now)
	delete(t.under, p)
	if !t.has(p) {
		return false
	}
	owner := t.pods[p.ref.UID]
	defer func() {
		if t.has(p) {
			t.agenda.Set(p, p.due)
		}
	}()
	if err != nil {
		t.failed(now, p, err)
		return false
	}
	p.errors = 0
	p.due = p.schedule.next(p.began, now)
	t.tell(p, result)
	p.count = p.count.next(result.Success)
	if p.count.reached(p.spec) {
		if old, known := owner.verdict(p.target); !known || old.Success != result.Success {
			t.decide(owner, p.target, topic.Probe{
				ContainerID: p.id, Success: result.Success,
				Message: result.Output, Since: now,
			})
			t.refresh(now, owner)
		}
	}
	return true
}

// has reports whether the probe is still to run.
func (t *tracker) has(p *probe) bool {
	owner := t.pods[p.ref.UID]
	return owner != nil && owner.probes[p.slot] == p
}
