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
