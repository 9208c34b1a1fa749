// Package tap shows the messages on the bus, one readable line each.
//
// # Reads
//
// Every topic, as raw messages; pod.update for the names of pods.
//
// # Guarantees
//
//   - Values of env entries, HTTP probe headers and kubectl's copy of the manifest are hidden unless asked for.
//   - A message that can't be decoded is shown as such; the tap goes on.
package tap

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/words"
)

// Format is how messages are shown.
type Format struct {
	JSON    bool
	ShowEnv bool
	Painter paint.Painter
}

// Filter says which messages are shown; empty fields let all through.
type Filter struct {
	// Pod is namespace/name, a name in any namespace, or a UID.
	Pod string
	// Topics are topic names or their beginnings, such as "pod" for all pod topics.
	Topics []string
	// Daemon is the writer.
	Daemon string
}

// View turns messages into lines. It remembers the last message of each key to show what
// changed, and the names of pods by UID.
type View struct {
	format Format
	filter Filter
	last   map[string][]byte
	refs   map[string]topic.Ref
}

// newView makes an empty view.
func newView(format Format, filter Filter) *View {
	return &View{format: format, filter: filter, last: map[string][]byte{}, refs: map[string]topic.Ref{}}
}

// Topics are the topics that the filter lets through; none of them is a call, whose messages aren't kept.
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

// Line is the message as a line without its newline; empty if the filter holds it back.
func (v *View) Line(m bus.Message, now time.Time) (string, error) {
	name, key := split(m.Subject)
	before := v.last[m.Subject]
	ref := v.learn(name, key, m)
	if m.Tombstone() {
		delete(v.last, m.Subject)
	} else {
		v.last[m.Subject] = m.Data
	}
	if !v.shows(name, ref, m) {
		return "", nil
	}
	e := entry{Message: m, name: name, key: key, ref: ref}
	if v.format.JSON {
		return v.json(e)
	}
	return v.text(e, before, now), nil
}

func (v *View) shows(name string, ref topic.Ref, m bus.Message) bool {
	f := v.filter
	if !f.matchesTopic(name) || f.Daemon != "" && f.Daemon != m.Header[bus.HeaderDaemon] {
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

// learn finds the pod that a message is about: by its payload or, where that has no name, by its key.
func (v *View) learn(name, key string, m bus.Message) topic.Ref {
	uid, _, _ := strings.Cut(key, ".")
	if !strings.HasPrefix(keysOf(name), "<uid>") {
		uid = ""
	}
	var payload struct {
		topic.Ref
		Kind string `json:"kind"`
		Pod  struct {
			Metadata topic.Ref `json:"metadata"`
		} `json:"pod"`
	}
	// A payload of another shape has no reference in it; text says what can't be decoded.
	_ = json.Unmarshal(m.Data, &payload)
	ref := payload.Ref
	if name == topic.PodUpdate.Name() {
		ref = payload.Pod.Metadata
	}
	switch {
	case uid == "" && (name != topic.KubeEvent.Name() || payload.Kind != "Pod"):
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

func keysOf(name string) string {
	for _, t := range topic.All() {
		if t.Name() == name {
			return t.Keys()
		}
	}
	return ""
}

// entry is a message with what its subject and its pod are.
type entry struct {
	bus.Message
	name, key string
	ref       topic.Ref
}

func (v *View) text(e entry, before []byte, now time.Time) string {
	p := v.format.Painter
	text, urgent, err := "removed", false, error(nil)
	if !e.Tombstone() {
		text, urgent, err = describe(e.name, e.key, e.Data, before)
	}
	if err != nil {
		text, urgent = "can't be decoded: "+err.Error(), true
	}
	text = words.OneLine(text)
	if urgent {
		text = p.Paint(paint.Yellow, text)
	}
	fields := []string{
		p.Paint(paint.Dim, e.Time.Format("15:04:05.000")),
		p.Paint(paint.Dim, fmt.Sprintf("%6s", words.Age(now.Sub(e.Time)))),
		p.Name(e.name, fmt.Sprintf("%-13s", words.OneLine(e.name))),
	}
	if pod := podName(e.ref); pod != "" {
		fields = append(fields, p.Paint(paint.Bold, words.OneLine(pod)))
	}
	return strings.Join(append(fields, text), "  ")
}

func podName(ref topic.Ref) string {
	if ref.Name != "" {
		return ref.Namespace + "/" + ref.Name
	}
	return ref.UID
}

// jsonLine is a message in the tap's JSON form.
type jsonLine struct {
	Time    time.Time       `json:"time"`
	Topic   string          `json:"topic"`
	Key     string          `json:"key,omitempty"`
	Daemon  string          `json:"daemon,omitempty"`
	Schema  string          `json:"schema,omitempty"`
	Pod     string          `json:"pod,omitempty"`
	Deleted bool            `json:"deleted,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (v *View) json(e entry) (string, error) {
	line := jsonLine{
		Time: e.Time, Topic: e.name, Key: e.key, Daemon: e.Header[bus.HeaderDaemon], Schema: e.Header[bus.HeaderSchema],
		Pod: podName(e.ref), Deleted: e.Tombstone(),
	}
	if !line.Deleted {
		line.Data = e.Data
		if !v.format.ShowEnv {
			data, err := redact(e.Data)
			if err != nil {
				return "", fmt.Errorf("message on %s: %w", e.Subject, err)
			}
			line.Data = data
		}
	}
	out, err := json.Marshal(line)
	if err != nil {
		return "", fmt.Errorf("message on %s: %w", e.Subject, err)
	}
	return string(out), nil
}
