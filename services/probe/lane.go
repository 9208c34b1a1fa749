package probe

import (
	"time"
)

const (
	// slowAfter is when a run no longer counts against the bound: it waits, and costs the machine nothing.
	slowAfter = time.Second
	// restFactor is how long an exec lane rests after a run while pods start or stop, as a multiple of the run's
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
)

// lane bounds the runs of one sort.
type lane struct {
	limit int
	// yields lanes give way while pods start or stop.
	yields bool
	quick  int
	// rest is until when only urgent runs begin.
	rest time.Time
	// due are the probes that wait for their turn, in no order.
	due []*probe
}

func (l *lane) add(p *probe) {
	p.place, p.waits = len(l.due), true
	l.due = append(l.due, p)
}

func (l *lane) remove(p *probe) {
	last := len(l.due) - 1
	l.due[p.place] = l.due[last]
	l.due[p.place].place = p.place
	l.due[last] = nil
	l.due = l.due[:last]
	p.place, p.waits = -1, false
}

// first is the probe that is to run before the others that wait, with its class at now; nil where there is none, or where no more may run.
func (l *lane) first(now time.Time) (best *probe) {
	if l.quick >= l.limit {
		return nil
	}
	for _, p := range l.due {
		p.class = p.owner.classOf(p, now)
		if best == nil || order(p, best) < 0 {
			best = p
		}
	}
	return best
}

// admits tells whether one more run may begin; transit means that pods start or stop.
func (l *lane) admits(c class, transit bool, now time.Time) bool {
	if l.quick >= l.limit {
		return false
	}
	if !l.yields || !transit || c == urgent {
		return true
	}
	return l.quick < max(1, l.limit/2) && !now.Before(l.rest)
}

// end takes note of a run's end.
func (l *lane) end(slow, transit bool, took time.Duration, now time.Time) {
	if !slow {
		l.quick--
	}
	if l.yields && transit {
		l.rest = now.Add(restFactor * min(took, slowAfter))
	}
}
