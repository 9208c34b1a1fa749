package probe

import (
	"cmp"
	"slices"
	"time"

	"kubelot.dev/daemon/agenda"
)

const (
	// slowAfter is when a run no longer counts against the bound: it waits, and costs the machine nothing.
	slowAfter = time.Second
	// easeFactor is how many times as many commands may run while no pod starts or stops. Commands of 100 ms that
	// do nothing but compute still end within slowAfter then, so that those that count are all that run.
	easeFactor = 8
	// restFactor is how long an exec limiter rests after a run while pods start or stop, as a multiple of the run's
	// duration: the slower the machine gets, the longer.
	restFactor = 3
	// patience is how long a probe gives way at most, endingPatience how long one on a pod that ends.
	patience, endingPatience = 10 * time.Second, 30 * time.Second
	// networkLimit bounds the probes that connect.
	networkLimit = 64
)

// class is the rank of a run among those that are due.
type class int

const (
	// urgent runs are those that somebody waits for: the first verdict on a container, or one that gave way for long.
	urgent class = iota
	routine
	// ending runs are routine ones on a pod that ends, which give way for longer.
	ending
	classes
)

// limiter bounds the runs of one sort.
type limiter struct {
	// limit is how many runs may count at once, ease how many while the limiter has no reason to give way.
	limit, ease int
	// yields limiters give way while pods start or stop.
	yields bool
	// counting are the runs that count against the bound, by the time from which they don't.
	counting agenda.Agenda[*probe]
	// rest is until when only urgent runs begin.
	rest time.Time
	// due are the probes that wait for their turn, by their class and by when they were due.
	due [classes]agenda.Agenda[*probe]
}

func newLimiter(limit, ease int, yields bool) limiter {
	l := limiter{limit: limit, ease: ease, yields: yields}
	for c := range l.due {
		l.due[c].Tie = tie
	}
	return l
}

// add has the probe wait for its turn, or changes its class.
func (l *limiter) add(p *probe, c class) {
	l.remove(p)
	p.class, p.waits = c, true
	l.due[c].Set(p, p.due)
}

func (l *limiter) remove(p *probe) {
	if p.waits {
		l.due[p.class].Remove(p)
		p.waits = false
	}
}

// waiting is how many probes wait for their turn.
func (l *limiter) waiting() (n int) {
	for c := range l.due {
		n += l.due[c].Len()
	}
	return n
}

// promoteLate makes those urgent that have given way for long.
func (l *limiter) promoteLate(now time.Time) {
	l.promote(routine, now.Add(-patience))
	l.promote(ending, now.Add(-endingPatience))
}

// first is the probe that is to run before the others that wait; nil where there is none.
func (l *limiter) first() *probe {
	if p, ok := l.due[urgent].First(); ok {
		return p
	}
	a, some := l.due[routine].First()
	if b, ok := l.due[ending].First(); ok && (!some || cmp.Or(a.due.Compare(b.due), tie(a, b)) > 0) {
		return b
	}
	return a
}

// promote makes those urgent that were due before the time.
func (l *limiter) promote(c class, before time.Time) {
	for {
		p, ok := l.due[c].First()
		if !ok || !p.due.Before(before) {
			return
		}
		l.add(p, urgent)
	}
}

// admits reports whether one more run may begin; transit means that pods start or stop.
func (l *limiter) admits(c class, transit bool, now time.Time) bool {
	if !l.yields || !transit {
		return l.counting.Len() < l.ease
	}
	if c == urgent {
		return l.counting.Len() < l.limit
	}
	return l.counting.Len() < max(1, l.limit/2) && !now.Before(l.rest)
}

// begin takes note of a run's begin.
func (l *limiter) begin(p *probe, now time.Time) {
	l.remove(p)
	p.began = now
	l.counting.Set(p, now.Add(slowAfter))
}

// release no longer counts the runs that take long.
func (l *limiter) release(now time.Time) {
	for _, ok := l.counting.Take(now); ok; _, ok = l.counting.Take(now) {
	}
}

// end takes note of a run's end.
func (l *limiter) end(p *probe, transit bool, took time.Duration, now time.Time) {
	l.counting.Remove(p)
	if l.yields && transit {
		l.rest = now.Add(restFactor * min(took, slowAfter))
	}
}

// begun puts runs that begin together into the order in which they were chosen.
func begun(runs []*probe) []*probe {
	slices.SortFunc(runs, func(a, b *probe) int {
		return cmp.Or(cmp.Compare(min(a.class, routine), min(b.class, routine)), a.due.Compare(b.due), tie(a, b))
	})
	return runs
}

// tie orders probes that are due at the same time.
func tie(a, b *probe) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.kind, b.kind)) }
