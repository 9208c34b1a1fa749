package traces

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// linger is how long a pod is known after it is gone, for steps that are told late.
const linger = time.Minute

// Pods makes the spans of the pods that are traced. It belongs to one goroutine.
type Pods struct {
	traced topic.Sampling
	pods   map[string]*pod // by UID
}

// newPods makes spans of so many pods of a million.
func newPods(traced topic.Sampling) *Pods { return &Pods{traced: traced, pods: map[string]*pod{}} }

// pod is what its two spans are made of. A time that isn't known is zero.
type pod struct {
	topic.Ref
	seen  time.Time // by the node
	ready time.Time
	stop  time.Time // when its end began
	over  time.Time // when it had given back what it had
	gone  time.Time // from the bus
	phase corev1.PodPhase
	why   string // it is in its phase
	// An earlier process of the daemon may have told a span.
	startTold, endTold bool
}

// Update takes in the pod as podsync states it. kept is true for what the bus had when the daemon began.
func (p *Pods) Update(u *topic.Pod, at time.Time, kept bool) []Span {
	t := p.of(topic.RefOf(u.Pod))
	switch {
	case t == nil:
		return nil
	case !t.gone.IsZero(), !t.seen.IsZero() && !t.seen.Equal(u.FirstSeen):
		// A static pod comes again with the same UID.
		*t = pod{Ref: t.Ref}
	}
	t.seen = u.FirstSeen
	if u.Lifecycle == topic.Syncing {
		return t.due()
	}
	// One that ends isn't Ready any more, and may have been.
	t.startTold = t.startTold || kept
	// A grace period that is shortened counts from then on, and the end goes on.
	if t.stop.IsZero() && u.Deadline != nil && u.GracePeriodSeconds != nil {
		t.stop = u.Deadline.Add(-time.Duration(*u.GracePeriodSeconds) * time.Second)
	}
	if u.Lifecycle == topic.Terminated && u.Released && t.over.IsZero() {
		t.over, t.endTold = at, t.endTold || kept
	}
	return t.due()
}

// Gone takes in that podsync has ended the pod for good, and forgets those that are gone for long.
func (p *Pods) Gone(uid string, at time.Time) []Span {
	for other, t := range p.pods {
		if !t.gone.IsZero() && at.Sub(t.gone) > linger {
			delete(p.pods, other)
		}
	}
	t := p.pods[uid]
	if t == nil || !t.gone.IsZero() {
		return nil
	}
	t.gone = at
	if t.over.IsZero() {
		t.over = at
	}
	return t.due()
}

// Status takes in the pod's merged status.
func (p *Pods) Status(m *topic.Merged, at time.Time, kept bool) []Span {
	t := p.of(m.Ref)
	if t == nil {
		return nil
	}
	t.phase, t.why = m.Status.Phase, strings.TrimSuffix(m.Status.Reason+": "+m.Status.Message, ": ")
	if t.ready.IsZero() && isReady(&m.Status) {
		t.ready, t.startTold = at, t.startTold || kept
	}
	return t.due()
}

// statusGone forgets a pod of which only a status was there.
func (p *Pods) statusGone(uid string) {
	if t := p.pods[uid]; t != nil && t.seen.IsZero() {
		delete(p.pods, uid)
	}
}

// step is the span of a step that has ended; false for none.
func (p *Pods) step(s *topic.Step) (Span, bool) {
	if s.Phase != topic.StepEnd || !p.traced.Has(s.UID) {
		return Span{}, false
	}
	span := Span{
		Trace: topic.TraceID(s.UID), Name: s.Name, Begin: s.At.Add(-s.Duration), End: s.At, Pod: s.Ref,
		Container: s.Container, Image: s.Image, Failed: s.Error != "", Error: s.Error,
	}
	span.ID, span.Parent = parseID(s.Span), parseID(s.Parent)
	if span.ID == none { // of a podsync that gives none
		span.ID = deriveID(s.UID, s.Name, s.Container, s.At.Format(time.RFC3339Nano))
	}
	if t := p.pods[s.UID]; t != nil && span.Parent == none {
		span.Parent = t.parent(span.Begin)
	}
	return span, true
}

// of is what is known of the pod; nil for one that isn't traced.
func (p *Pods) of(ref topic.Ref) *pod {
	if !p.traced.Has(ref.UID) {
		return nil
	}
	t := p.pods[ref.UID]
	if t == nil {
		t = &pod{Ref: ref}
		p.pods[ref.UID] = t
	}
	return t
}

// due are the pod's own spans that can be told now.
func (t *pod) due() (spans []Span) {
	if t.seen.IsZero() {
		return nil
	}
	if start := cmp.Or(t.ready, t.over); !t.startTold && !start.IsZero() {
		t.startTold = true
		spans = append(spans, t.start())
	}
	if !t.endTold && !t.stop.IsZero() && !t.over.IsZero() {
		t.endTold = true
		spans = append(spans, Span{
			Trace: topic.TraceID(t.UID), ID: t.id(spanEnd), Parent: t.id(spanPod), Name: spanEnd, Begin: t.stop, End: t.over,
			Pod: t.Ref,
		})
	}
	return spans
}

// start is the pod's first span. A pod that has ended without being Ready has failed, unless it has done its work.
func (t *pod) start() Span {
	s := Span{Trace: topic.TraceID(t.UID), ID: t.id(spanPod), Name: spanPod, Begin: t.seen, End: t.ready, Pod: t.Ref}
	if !t.ready.IsZero() {
		return s
	}
	s.End = cmp.Or(t.stop, t.over)
	switch t.phase {
	case corev1.PodSucceeded:
	case corev1.PodFailed:
		s.Failed, s.Error = true, t.why
	default:
		s.Failed, s.Error = true, "it ended before it was Ready"
	}
	return s
}

// parent is the span that a step which began then is below.
func (t *pod) parent(began time.Time) ID {
	switch {
	case t.seen.IsZero():
		return none
	case !t.stop.IsZero() && !began.Before(t.stop):
		return t.id(spanEnd)
	}
	return t.id(spanPod)
}

// id is the ID of one of the pod's spans. After a restart of the daemon it is the same.
func (t *pod) id(span string) ID { return deriveID(t.UID, t.seen.UTC().Format(time.RFC3339Nano), span) }

func isReady(s *corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
