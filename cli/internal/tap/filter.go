package tap

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// Filter says which messages are shown; empty fields let all through.
type Filter struct {
	// Pod is namespace/name, a name in any namespace, or a UID.
	Pod string
	// Namespace is that of the pod.
	Namespace string
	// Labels select the pod by the labels that it has, or had when it was last seen; nil lets all through.
	Labels labels.Selector
	// Topics are topic names or their beginnings, such as "pod" for all pod topics.
	Topics []string
	// Daemon is the writer.
	Daemon string
	// Errors lets through what a person should look at: failures, warnings and what can't be decoded.
	Errors bool
	// SlowerThan lets through the ends of steps that took at least as long.
	SlowerThan time.Duration
}

// selected are the topics that the filter lets through; none of them is a call, whose messages aren't kept.
func (f Filter) selected() ([]bus.Topic, error) {
	var selected []bus.Topic
	for _, t := range topic.All() {
		if t.Kind() == bus.KindCall || !f.matchesTopic(t.Name()) {
			continue
		}
		selected = append(selected, t)
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("no topic begins with %s; the topics are %s", strings.Join(f.Topics, " or "),
			strings.Join(topicNames(), ", "))
	}
	return selected, nil
}

// subjects are the subject patterns of the topics that the filter lets through.
func (f Filter) subjects() ([]string, error) {
	selected, err := f.selected()
	if err != nil {
		return nil, err
	}
	patterns := make([]string, 0, len(selected))
	for _, t := range selected {
		patterns = append(patterns, bus.Filter(t))
	}
	return patterns, nil
}

func (f Filter) matchesTopic(name string) bool {
	if len(f.Topics) == 0 {
		return true
	}
	for _, prefix := range f.Topics {
		if name == prefix || strings.HasPrefix(name, strings.TrimSuffix(prefix, ".")+".") {
			return true
		}
	}
	return false
}

// matchesPod reports whether the filter lets messages about the pod through. has are its labels.
func (f Filter) matchesPod(ref topic.Ref, has labels.Set) bool {
	if f.Namespace != "" && f.Namespace != ref.Namespace {
		return false
	}
	if f.Labels != nil && (ref.UID == "" || !f.Labels.Matches(has)) {
		return false
	}
	switch {
	case f.Pod == "" || f.Pod == ref.UID:
		return true
	case strings.Contains(f.Pod, "/"):
		return f.Pod == ref.Namespace+"/"+ref.Name
	}
	return f.Pod == ref.Name
}

// matchesDuration reports whether the message is the end of a step that took long enough.
func (f Filter) matchesDuration(e entry) bool {
	if f.SlowerThan <= 0 {
		return true
	}
	step, ok := stepOf(e)
	return ok && step.Phase == topic.StepEnd && step.Duration >= f.SlowerThan
}

// stepOf decodes the step of a worker, if the message is one.
func stepOf(e entry) (step topic.Step, ok bool) {
	if e.name != topic.PodStep.Name() || e.Tombstone() {
		return step, false
	}
	return step, json.Unmarshal(e.Data, &step) == nil
}

func topicNames() []string {
	var names []string
	for _, t := range topic.All() {
		if t.Kind() != bus.KindCall {
			names = append(names, t.Name())
		}
	}
	return names
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
	if name == "" {
		return subject, ""
	}
	return name, key
}

func keysOf(name string) string {
	for _, t := range topic.All() {
		if t.Name() == name {
			return t.Keys()
		}
	}
	return ""
}
