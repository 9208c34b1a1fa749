package recheck

import (
	"cmp"
	"slices"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync"
)

// podsync reads a pod from the runtime after each of its actions. These readings aren't on the bus, and pleg's come
// later and fewer. But containers have the times at which they were created, started and ended, and so the state at any
// moment follows from the readings of pleg. The runtime shows the end of a container a moment after it, and its clock
// isn't that of the readings: between the end and the first reading that shows it, either may have been read.

// runtime is what the runtime had of a pod over time.
type runtime struct {
	ref        topic.Ref
	containers []*containerLife
	sandboxes  []*sandboxLife
	// partial are readings that were incomplete.
	partial track[bool]
}

// containerLife is a container as it was read last, and since when it was missing.
type containerLife struct {
	topic.Container
	// shown is when a reading showed first that it had ended.
	shown, removed time.Time
}

// sandboxLife is a sandbox as it was read while it was ready.
type sandboxLife struct {
	topic.Sandbox
	// stopped is when it was no longer ready, removed since when it was missing; zero for never.
	stopped, removed time.Time
}

func newRuntime(p *pod) *runtime {
	r := &runtime{}
	for _, e := range p.seen {
		// A reading's time is that of its beginning: what it shows was so by then.
		at := e.value.At
		if e.gone {
			at = e.at
		} else {
			r.ref = e.value.Ref
		}
		r.partial = append(r.partial, entry[bool]{at: at, value: len(e.value.Errors) > 0})
		r.takeContainers(e.value, at)
		r.takeSandboxes(e.value, at)
	}
	for _, s := range p.steps {
		if s.kind() == podsync.ActionStopSandbox && s.Error == "" && !s.open() {
			r.stoppedBy(s)
		}
	}
	return r
}

func (r *runtime) takeContainers(o topic.PodObservation, at time.Time) {
	there := map[string]bool{}
	for _, c := range o.Containers {
		there[c.ID] = true
		i := slices.IndexFunc(r.containers, func(l *containerLife) bool { return l.ID == c.ID })
		if i < 0 {
			r.containers = append(r.containers, &containerLife{})
			i = len(r.containers) - 1
		}
		l := r.containers[i]
		if l.Container = c; c.State == topic.ContainerExited && l.shown.IsZero() {
			l.shown = at
		}
	}
	for _, l := range r.containers {
		if !there[l.ID] && l.removed.IsZero() && len(o.Errors) == 0 {
			l.removed = at
		}
	}
}

func (r *runtime) takeSandboxes(o topic.PodObservation, at time.Time) {
	there := map[string]bool{}
	for _, s := range o.Sandboxes {
		there[s.ID] = true
		i := slices.IndexFunc(r.sandboxes, func(l *sandboxLife) bool { return l.ID == s.ID })
		if i < 0 {
			r.sandboxes = append(r.sandboxes, &sandboxLife{Sandbox: s})
			i = len(r.sandboxes) - 1
		}
		l := r.sandboxes[i]
		switch {
		case s.Ready:
			l.Sandbox = s
		case l.stopped.IsZero():
			l.stopped = at
		}
	}
	for _, l := range r.sandboxes {
		if !there[l.ID] && l.removed.IsZero() && len(o.Errors) == 0 {
			l.removed = at
		}
	}
}

// stoppedBy takes in that a step has stopped a sandbox, which is known earlier than the next reading shows it.
func (r *runtime) stoppedBy(s step) {
	for _, l := range r.sandboxes {
		if l.CreatedAt.Before(s.begin) && !l.stopped.IsZero() && l.stopped.After(s.end) &&
			(s.id == "" || s.id == l.ID) {
			l.stopped = s.end
		}
	}
}

// at is what a reading at that time would have shown, newest first. A late one shows ends of containers only from when
// on they were read.
func (r *runtime) at(t time.Time, late bool) topic.PodObservation {
	o := topic.PodObservation{Ref: r.ref, At: t}
	for _, l := range r.sandboxes {
		if l.CreatedAt.After(t) || over(l.removed, t) {
			continue
		}
		s := l.Sandbox
		s.Ready = !over(l.stopped, t)
		o.Sandboxes = append(o.Sandboxes, s)
	}
	for _, l := range r.containers {
		if l.CreatedAt.After(t) || over(l.removed, t) {
			continue
		}
		o.Containers = append(o.Containers, l.at(t, late))
	}
	if partial, ok := r.partial.last(t); ok && partial {
		o.Errors = []string{"recorded as incomplete"}
	}
	slices.SortStableFunc(o.Sandboxes, func(a, b topic.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt))
	})
	slices.SortStableFunc(o.Containers, func(a, b topic.Container) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt))
	})
	return o
}

// at is the container as it was at a time.
func (l *containerLife) at(t time.Time, late bool) topic.Container {
	c, ended := l.Container, l.FinishedAt
	if late && l.shown.After(ended) {
		ended = l.shown
	}
	if c.State == topic.ContainerExited && over(ended, t) || c.State == topic.ContainerUnknown {
		return c
	}
	c.FinishedAt, c.ExitCode, c.Reason, c.Message = time.Time{}, 0, "", ""
	c.State = topic.ContainerRunning
	if !over(c.StartedAt, t) {
		c.State, c.StartedAt = topic.ContainerCreated, time.Time{}
	}
	return c
}

// over reports whether something that happened at a time has happened by t. A zero time is never.
func over(at, t time.Time) bool { return !at.IsZero() && !at.After(t) }

// times are when something changed in a period.
func (r *runtime) times(from, to time.Time) []time.Time {
	var times []time.Time
	add := func(all ...time.Time) {
		for _, t := range all {
			if !t.IsZero() && !t.Before(from) && !t.After(to) {
				times = append(times, t)
			}
		}
	}
	for _, l := range r.containers {
		add(l.CreatedAt, l.StartedAt, l.FinishedAt, l.shown, l.removed)
	}
	for _, l := range r.sandboxes {
		add(l.CreatedAt, l.stopped, l.removed)
	}
	return times
}
