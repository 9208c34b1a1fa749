package probe

import (
	"cmp"
	"hash/fnv"
	"time"

	"kubelot.dev/bus/topic"
)

// schedule is when a probe runs: every period, at a phase that follows from the container's ID and the kind of probe.
type schedule struct {
	period, phase, delay time.Duration
}

func newSchedule(t target) schedule {
	period := time.Duration(max(cmp.Or(t.spec.PeriodSeconds, defaultPeriod), 1)) * time.Second
	sum := fnv.New64a()
	// Writing to a hash can't fail.
	_, _ = sum.Write([]byte(t.id + t.kind))
	return schedule{
		period: period,
		phase:  time.Duration(sum.Sum64() % uint64(period)),
		delay:  time.Duration(max(t.spec.InitialDelaySeconds, 0)) * time.Second,
	}
}

// first is the first run of a probe that may run from now on. What somebody waits for (the first verdict on startup and
// readiness) doesn't wait for the phase. The initial delay is no longer than it says, though the time of day was set
// back since the container's start.
func (s schedule) first(t target, decided bool, now time.Time) time.Time {
	from := now
	if wait := min(t.started.Add(s.delay).Sub(now), s.delay); wait > 0 {
		from = now.Add(wait) // by the monotonic clock
	}
	if decided || t.kind == topic.ProbeLiveness {
		return s.at(from)
	}
	return from
}

// next is the run after one that began and ended then: half a period to one and a half after its begin where it was off
// the phase, else a period. Runs that were missed are left out.
func (s schedule) next(began, ended time.Time) time.Time {
	from := began.Add(s.period / 2)
	if ended.After(from) {
		from = ended
	}
	return s.at(from)
}

// at is the first time of the phase from t on.
func (s schedule) at(t time.Time) time.Time {
	over := (t.UnixNano() - int64(s.phase)) % int64(s.period)
	if over == 0 {
		return t
	}
	return t.Add(s.period - time.Duration(over))
}
