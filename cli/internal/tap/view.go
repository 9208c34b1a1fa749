package tap

import (
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// view turns messages into lines. It remembers the last message of each key to show what changed, the names and labels
// of pods by UID, and the steps that have begun.
type view struct {
	format Format
	filter Filter
	last   map[string][]byte
	refs   map[string]topic.Ref
	labels map[string]labels.Set
	open   openSteps
}

// newView makes an empty view.
func newView(format Format, filter Filter) *view {
	return &view{
		format: format, filter: filter, last: map[string][]byte{}, refs: map[string]topic.Ref{},
		labels: map[string]labels.Set{},
	}
}

// entry is a message with what its subject and its pod are.
type entry struct {
	bus.Message
	name, key string
	ref       topic.Ref
	// text says what matters in it, once it was described. urgent reports whether a person should look at it.
	text   string
	urgent bool
}

// Line is the message as a line without its newline; empty if the filter holds it back.
func (v *view) Line(m bus.Message, now time.Time) (string, error) {
	e := v.enter(m)
	before := v.last[m.Subject]
	v.remember(m)
	if !v.shows(e) {
		return "", nil
	}
	if v.format.Style != JSON || v.filter.Errors {
		e.describe(before)
	}
	if v.filter.Errors && !e.urgent {
		return "", nil
	}
	return v.line(e, now)
}

// enter finds out what a message is about, and learns from it.
func (v *view) enter(m bus.Message) entry {
	name, key := split(m.Subject)
	e := entry{Message: m, name: name, key: key, ref: v.learn(name, key, m)}
	v.open.note(e)
	return e
}

// remember keeps the message to tell the next one of its key against it.
func (v *view) remember(m bus.Message) {
	if m.Tombstone() {
		delete(v.last, m.Subject)
		return
	}
	v.last[m.Subject] = m.Data
}

// shows reports whether the filter lets the message through, but for Errors.
func (v *view) shows(e entry) bool {
	f := v.filter
	if !f.matchesTopic(e.name) || f.Daemon != "" && f.Daemon != e.Header[bus.HeaderDaemon] {
		return false
	}
	return f.matchesPod(e.ref, v.labels[e.ref.UID]) && f.matchesDuration(e)
}

// learn finds the pod that a message is about: by its payload or, where that has no name, by its key.
func (v *view) learn(name, key string, m bus.Message) topic.Ref {
	uid, _, _ := strings.Cut(key, ".")
	if !strings.HasPrefix(keysOf(name), "<uid>") {
		uid = ""
	}
	var payload struct {
		topic.Ref
		Kind string `json:"kind"`
		// Pod is a whole pod in pod.update, and the name of one in gc.decision.
		Pod struct {
			topic.Ref
			Metadata struct {
				topic.Ref
				Labels labels.Set `json:"labels"`
			} `json:"metadata"`
		} `json:"pod"`
	}
	// A payload of another shape has no reference in it; text says what can't be decoded.
	_ = json.Unmarshal(m.Data, &payload)
	ref, named := payload.Ref, uid != ""
	switch name {
	case topic.PodUpdate.Name():
		ref = payload.Pod.Metadata.Ref
		if ref.UID != "" {
			v.labels[ref.UID] = payload.Pod.Metadata.Labels
		}
	case topic.GCDecision.Name():
		ref, named = payload.Pod.Ref, true
	case topic.KubeEvent.Name():
		named = payload.Kind == "Pod"
	}
	switch {
	case !named:
		return topic.Ref{}
	case ref.Name != "" && ref.UID != "":
		v.refs[ref.UID] = ref
		return ref
	}
	if known, ok := v.refs[uid]; ok {
		return known
	}
	return topic.Ref{UID: uid}
}
