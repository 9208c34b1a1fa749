package live

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// podLog is what is remembered of one pod besides what is stated of it now.
type podLog struct {
	// touched is the time of the last message about it.
	touched time.Time
	// updated is when its first pod.update was stored. mounted is when all its volumes first were, ready when it first
	// was Ready.
	updated, mounted, ready time.Time
	// probed is when a container's probe first succeeded, by "container/kind".
	probed map[string]time.Time
	// born are the containers that were seen, by their ID.
	born   map[string]topic.Container
	steps  []topic.Step
	events []topic.Event
}

// log is the pod's. What is older than the present is remembered only of pods that are here.
func (m *Model) log(uid string, current bool) *podLog {
	if l, ok := m.pods[uid]; ok {
		return l
	}
	if _, here := m.snapshot.Updates[uid]; !here && !current {
		return nil
	}
	l := &podLog{probed: map[string]time.Time{}, born: map[string]topic.Container{}}
	m.pods[uid] = l
	return l
}

// logMessage remembers what a message says of a pod or the node.
func (m *Model) logMessage(e entry, current bool) {
	switch v := e.value.(type) {
	case nil:
		if e.topic.Name() == topic.PodUpdate.Name() && current {
			delete(m.pods, e.key)
		}
		return
	case topic.Event:
		m.event(v, current)
		return
	case topic.Decision:
		m.snapshot.Decisions = appendBounded(m.snapshot.Decisions, v, maxHistory)
		return
	}
	if !strings.HasPrefix(e.topic.Keys(), "<uid>") {
		return
	}
	uid, rest, _ := strings.Cut(e.key, ".")
	l := m.log(uid, current)
	if l == nil {
		return
	}
	l.touched = e.Time
	l.learn(e, rest)
}

func (l *podLog) learn(e entry, rest string) {
	switch v := e.value.(type) {
	case topic.Pod:
		l.updated = first(l.updated, e.Time)
	case topic.Step:
		l.steps = appendBounded(l.steps, v, maxSteps)
	case topic.PodVolumes:
		if v.Phase == topic.VolumeMounted {
			l.mounted = first(l.mounted, e.Time)
		}
	case topic.PodObservation:
		for _, c := range v.Containers {
			if _, known := l.born[c.ID]; known || len(l.born) < maxSpans {
				l.born[c.ID] = c
			}
		}
	case topic.Probe:
		name := strings.ReplaceAll(rest, ".", "/")
		if v.Success {
			l.probed[name] = first(l.probed[name], probedAt(v, e.Time))
		}
	case topic.Merged:
		if at, ok := readySince(v.Status, e.Time); ok {
			l.ready = first(l.ready, at)
		}
	}
}

// event remembers an Event for the pod and for the node.
func (m *Model) event(v topic.Event, current bool) {
	m.snapshot.Events = appendBounded(m.snapshot.Events, v, maxHistory)
	if v.Kind != "Pod" {
		return
	}
	if l := m.log(v.UID, current); l != nil {
		l.events = appendBounded(l.events, v, maxEvents)
		l.touched = v.At
	}
}

// sweep forgets pods that aren't here any more. Of events no tombstone comes.
func (m *Model) sweep(now time.Time) {
	for subject, mark := range m.counts.last {
		if _, stated := m.stated[subject]; !stated && now.Sub(mark.at) > goneAfter {
			delete(m.counts.last, subject)
		}
	}
	for uid, l := range m.pods {
		if _, here := m.snapshot.Updates[uid]; !here && now.Sub(l.touched) > goneAfter {
			delete(m.pods, uid)
		}
	}
}

// probedAt is when the probe succeeded: as the daemon says, but not after the bus had it.
func probedAt(p topic.Probe, stored time.Time) time.Time {
	if p.Since.IsZero() || p.Since.After(stored) {
		return stored
	}
	return p.Since
}

// readySince is when the pod became Ready. The condition has whole seconds only, so that the message's time counts
// where it is near.
func readySince(status corev1.PodStatus, stored time.Time) (at time.Time, ok bool) {
	for _, c := range status.Conditions {
		if c.Type != corev1.PodReady || c.Status != corev1.ConditionTrue {
			continue
		}
		since := c.LastTransitionTime.Time
		if since.IsZero() || stored.Sub(since) < 2*time.Second {
			return stored, true
		}
		return since, true
	}
	return time.Time{}, false
}

// first is the earlier one of two times; zero is none.
func first(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// appendBounded forgets the oldest half when there are too many.
func appendBounded[T any](list []T, item T, most int) []T {
	if len(list) >= most {
		list = append([]T(nil), list[len(list)-most/2:]...)
	}
	return append(list, item)
}
