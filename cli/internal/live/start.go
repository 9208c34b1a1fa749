package live

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// maxSpans bounds what is kept of a start that fails again and again.
const maxSpans = 60

// start puts together the way of a pod to Ready.
func (m *Model) start(uid string) Start {
	update, l := m.snapshot.Updates[uid], m.pods[uid]
	s := Start{Begin: update.FirstSeen}
	if l == nil {
		s.Partial = true
		return s
	}
	s.Ready = l.ready
	s.Partial = m.from.IsZero() || m.from.After(update.FirstSeen)
	s.admitted(l)
	s.volumes(m.snapshot.Volumes[uid], l)
	for i, step := range l.steps {
		if !s.over(step.At.Add(-step.Duration)) {
			s.step(step, l, supersedes(l.steps[i+1:], step))
		}
	}
	if update.Pod != nil {
		s.probes(update.Pod, m.running(uid), l)
	}
	s.status()
	order := Stages()
	slices.SortStableFunc(s.Spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Stage), slices.Index(order, b.Stage)), a.From.Compare(b.From),
			strings.Compare(a.Object, b.Object))
	})
	s.Spans = s.Spans[:min(len(s.Spans), maxSpans)]
	return s
}

// over reports whether the start was over by then.
func (s *Start) over(at time.Time) bool { return !s.Ready.IsZero() && at.After(s.Ready) }

func (s *Start) add(span Span) { s.Spans = append(s.Spans, span) }

func (s *Start) admitted(l *podLog) {
	if !s.Partial && !l.updated.IsZero() && !l.updated.Before(s.Begin) {
		s.add(Span{Stage: StageAdmit, From: s.Begin, To: l.updated})
	}
}

// volumes is the span of all volumes together. It begins with the first pod.update, which tells the volume daemon.
func (s *Start) volumes(now topic.PodVolumes, l *podLog) {
	if len(now.Volumes) == 0 {
		return
	}
	from := l.updated
	if s.Partial || from.IsZero() {
		from = s.Begin
	}
	span := Span{Stage: StageVolumes, From: from, To: l.mounted}
	if l.mounted.IsZero() {
		span.Error = volumeTrouble(now)
	} else if s.over(l.mounted) || l.mounted.Before(from) {
		return // mounted again later, such as by another process; when it first was isn't known
	}
	s.add(span)
}

func volumeTrouble(v topic.PodVolumes) string {
	var trouble []string
	for name, volume := range v.Volumes {
		if volume.Message != "" && volume.Phase != topic.VolumeMounted {
			trouble = append(trouble, name+": "+volume.Message)
		}
	}
	slices.Sort(trouble)
	return strings.Join(trouble, "; ")
}

// supersedes reports whether a later message has the end of the step, which has begun, or its next try.
func supersedes(later []topic.Step, step topic.Step) bool {
	return step.Phase == topic.StepBegin && slices.ContainsFunc(later, func(o topic.Step) bool {
		return o.Name == step.Name && o.Container == step.Container
	})
}

// step adds a step of the worker. superseded steps have an end of their own.
func (s *Start) step(step topic.Step, l *podLog, superseded bool) {
	span := Span{Object: step.Container, From: step.At, Error: step.Error}
	if step.Phase == topic.StepEnd {
		span.From, span.To = step.At.Add(-step.Duration), step.At
	} else if superseded {
		return
	}
	switch step.Name {
	case "create sandbox":
		span.Stage = StageSandbox
	case "ensure image":
		span.Stage, span.Image = StagePull, step.Image
	case "start container":
		s.container(span, l)
		return
	default:
		return
	}
	s.add(span)
}

// container adds the creation and the start of a container, which are one step of the worker: the runtime says when it
// had created it.
func (s *Start) container(span Span, l *podLog) {
	span.Stage = StageStart
	for _, c := range l.born {
		within := !c.CreatedAt.Before(span.From) && (span.To.IsZero() || !c.CreatedAt.After(span.To))
		if c.Name == span.Object && within {
			s.add(Span{Stage: StageCreate, Object: span.Object, From: span.From, To: c.CreatedAt})
			span.From = c.CreatedAt
			break
		}
	}
	s.add(span)
}

// probes adds how long containers took until their probes succeeded.
func (s *Start) probes(pod *corev1.Pod, running map[string]topic.Container, l *podLog) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		from := running[c.Name].StartedAt
		for kind, probe := range map[string]*corev1.Probe{
			topic.ProbeStartup: c.StartupProbe, topic.ProbeReadiness: c.ReadinessProbe,
		} {
			name := c.Name + "/" + kind
			to := l.probed[name]
			if probe == nil || from.IsZero() || s.over(from) || !to.IsZero() && to.Before(from) {
				continue
			}
			s.add(Span{Stage: StageProbe, Object: name, From: from, To: to})
		}
	}
}

// running are the pod's containers that run, by name.
func (m *Model) running(uid string) map[string]topic.Container {
	found := map[string]topic.Container{}
	for _, c := range m.snapshot.Observations[uid].Containers {
		if _, newer := found[c.Name]; !newer && c.State == topic.ContainerRunning {
			found[c.Name] = c
		}
	}
	return found
}

// status adds what passes between the end of the last part and the pod's status, which says Ready.
func (s *Start) status() {
	if s.Ready.IsZero() {
		return
	}
	last := s.Begin
	for _, span := range s.Spans {
		if span.To.After(last) && !span.To.After(s.Ready) {
			last = span.To
		}
	}
	if len(s.Spans) > 0 {
		s.add(Span{Stage: StageReady, From: last, To: s.Ready})
	}
}

// Took is how long a stage took, or has taken until now: the time in which at least one of its spans was under way.
// ok is false where it has none.
func (s Start) Took(stage Stage, now time.Time) (took time.Duration, ok bool) {
	var until time.Time
	for _, span := range s.Spans { // ordered by time within a stage
		if span.Stage != stage {
			continue
		}
		from, to := span.From, span.To
		if to.IsZero() {
			to = now
		}
		if from.Before(until) {
			from = until
		}
		if to.After(from) {
			took += to.Sub(from)
			until = to
		}
		ok = true
	}
	return took, ok
}
