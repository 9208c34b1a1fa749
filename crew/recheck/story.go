package recheck

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/recording"
	"kubelot.dev/services/podsync"
)

// story is what a recording says, by what it is about.
type story struct {
	header   recording.Header
	pods     map[string]*pod
	mirrors  map[string]track[topic.MirrorPod] // by the mirror pod's UID
	sources  track[topic.Sources]
	runtime  track[topic.Runtime]
	health   map[string]track[topic.DaemonHealth]
	gc       []topic.Decision
	messages int
	// first and last are the times of the first and the last message that isn't retained.
	first, last time.Time
	// unread counts messages that can't be decoded, by topic.
	unread map[string]int
}

// pod is what a recording says of one pod.
type pod struct {
	uid         string
	updates     track[topic.Pod]
	objects     track[topic.APIPod]
	patches     track[topic.PodStatus]
	merged      track[topic.Merged]
	seen        track[topic.PodObservation]
	volumes     track[topic.PodVolumes]
	allocations track[topic.Allocation]
	probes      map[topic.ProbeKey]track[topic.Probe]
	steps       []step
}

// step is one step of a pod's worker from its begin to its end. An open one has no end.
type step struct {
	topic.Step
	begin, end time.Time
	// id is the container or sandbox that it was about, and again is why that was stopped if it is to be started again. A
	// step doesn't say that: the plan that it follows from does.
	id, again string
}

func (s step) kind() podsync.ActionKind { return podsync.ActionKind(s.Name) }

func (s step) open() bool { return s.end.IsZero() }

// covers reports whether the step was under way at a time.
func (s step) covers(at time.Time) bool {
	return !s.begin.After(at) && (s.open() || s.end.After(at))
}

func (p *pod) String() string {
	for _, e := range slices.Backward(p.updates) {
		if e.value.Pod != nil {
			return e.value.Pod.Namespace + "/" + e.value.Pod.Name
		}
	}
	return p.uid
}

// born reports whether the recording has the pod from its beginning on.
func (p *pod) born() bool { return len(p.updates) > 0 && !p.updates[0].retained }

// read reads a recording.
func read(in io.Reader) (*story, error) {
	r, err := recording.Open(in)
	if err != nil {
		return nil, err
	}
	s := &story{
		header: r.Header(), pods: map[string]*pod{}, mirrors: map[string]track[topic.MirrorPod]{},
		health: map[string]track[topic.DaemonHealth]{}, unread: map[string]int{},
	}
	var records []recording.Record
	history := map[string]bool{}
	for record, err := range r.All() {
		if err != nil {
			return nil, err
		}
		records = append(records, record)
		history[identity(record)] = history[identity(record)] || !record.Retained
	}
	// What was retained when the recording ended may be later than its first messages, and one of them.
	slices.SortStableFunc(records, func(a, b recording.Record) int { return a.Time.Compare(b.Time) })
	for _, record := range records {
		if record.Retained && history[identity(record)] || record.Garbled {
			continue
		}
		s.take(record)
		if record.Retained {
			continue
		}
		s.messages++
		if s.first.IsZero() {
			s.first = record.Time
		}
		s.last = record.Time
	}
	return s, nil
}

// identity is equal for two records of one message.
func identity(r recording.Record) string {
	return r.Time.UTC().Format(time.RFC3339Nano) + " " + r.Subject
}

// pod is the record of the pod, which is made if need be.
func (s *story) pod(uid string) *pod {
	p := s.pods[uid]
	if p == nil {
		p = &pod{uid: uid, probes: map[topic.ProbeKey]track[topic.Probe]{}}
		s.pods[uid] = p
	}
	return p
}

// take takes in one message.
func (s *story) take(r recording.Record) {
	name, key := split(r.Subject)
	switch name {
	case topic.PodUpdate.Name():
		s.takeUpdate(r, key)
	case topic.PodObject.Name():
		add(s, &s.pod(key).objects, r, topic.PodObject)
	case topic.StatusPatch.Name():
		add(s, &s.pod(key).patches, r, topic.StatusPatch)
	case topic.MergedStatus.Name():
		add(s, &s.pod(key).merged, r, topic.MergedStatus)
	case topic.PLEGEvent.Name():
		add(s, &s.pod(key).seen, r, topic.PLEGEvent)
	case topic.VolumeState.Name():
		add(s, &s.pod(key).volumes, r, topic.VolumeState)
	case topic.PodAllocation.Name():
		add(s, &s.pod(key).allocations, r, topic.PodAllocation)
	case topic.ProbeResult.Name():
		s.takeProbe(r, key)
	default:
		s.takeOfNode(r, name, key)
	}
}

func (s *story) takeOfNode(r recording.Record, name, key string) {
	switch name {
	case topic.PodMirror.Name():
		of := s.mirrors[key]
		add(s, &of, r, topic.PodMirror)
		s.mirrors[key] = of
	case topic.PodSources.Name():
		add(s, &s.sources, r, topic.PodSources)
	case topic.NodeRuntime.Name():
		add(s, &s.runtime, r, topic.NodeRuntime)
	case topic.Health.Name():
		of := s.health[key]
		add(s, &of, r, topic.Health)
		s.health[key] = of
	case topic.PodStep.Name():
		var events track[topic.Step]
		add(s, &events, r, topic.PodStep)
		if len(events) > 0 && !r.Retained {
			s.pod(key).takeStep(events[0].value)
		}
	case topic.GCDecision.Name():
		var events track[topic.Decision]
		add(s, &events, r, topic.GCDecision)
		if len(events) > 0 && !r.Retained {
			s.gc = append(s.gc, events[0].value)
		}
	}
}

// takeUpdate takes in a pod.update, unless it has no pod.
func (s *story) takeUpdate(r recording.Record, key string) {
	var news track[topic.Pod]
	add(s, &news, r, topic.PodUpdate)
	if len(news) == 0 {
		return
	}
	if news[0].value.Pod == nil && !news[0].gone {
		s.unread[topic.PodUpdate.Name()]++
		return
	}
	s.pod(key).updates = append(s.pod(key).updates, news[0])
}

func (s *story) takeProbe(r recording.Record, key string) {
	parsed, ok := topic.ParseProbeKey(key)
	if !ok {
		s.unread[topic.ProbeResult.Name()]++
		return
	}
	p := s.pod(parsed.UID)
	of := p.probes[parsed]
	add(s, &of, r, topic.ProbeResult)
	p.probes[parsed] = of
}

// takeStep joins the begin and the end of a step. A quick one has an end only.
func (p *pod) takeStep(e topic.Step) {
	if e.Phase == topic.StepBegin {
		p.steps = append(p.steps, step{Step: e, begin: e.At})
		return
	}
	for i := range p.steps {
		if of := &p.steps[i]; of.open() && of.Name == e.Name && of.Container == e.Container {
			of.Step, of.end = e, e.At
			return
		}
	}
	p.steps = append(p.steps, step{Step: e, begin: e.At.Add(-e.Duration), end: e.At})
}

// add appends a message to a track, unless it can't be read by this version.
func add[T any](s *story, to *track[T], r recording.Record, t bus.Topic) {
	e := entry[T]{at: r.Time, gone: r.Deleted, retained: r.Retained}
	if !r.Deleted {
		schema, err := strconv.Atoi(r.Schema)
		if r.Schema != "" && (err != nil || schema > t.Schema()) || json.Unmarshal(r.Data, &e.value) != nil {
			s.unread[t.Name()]++
			return
		}
	}
	*to = append(*to, e)
}

// split finds the topic of a subject, and the key.
func split(subject string) (name, key string) {
	for _, t := range topic.All() {
		if subject == t.Name() {
			return subject, ""
		}
		if rest, ok := strings.CutPrefix(subject, t.Name()+"."); ok && len(t.Name()) > len(name) {
			name, key = t.Name(), rest
		}
	}
	return name, key
}

// setting is the value of a setting as text; empty if the recording doesn't say.
func (s *story) setting(name string) string {
	if v, ok := s.header.Settings[name]; ok && v != nil {
		return fmt.Sprint(v)
	}
	return ""
}
