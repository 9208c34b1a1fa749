package tap

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/words"
)

// Style is the form of a line.
type Style string

// The styles of lines.
const (
	// Text has the time, the age, the topic, the pod, and what matters.
	Text Style = "text"
	// Wide also has the date, the daemon, and the key.
	Wide Style = "wide"
	// Short has the time, the pod, and what matters.
	Short Style = "short"
	// JSON has the whole message.
	JSON Style = "json"
)

// Styles are the names of all styles.
func Styles() []string { return []string{string(Text), string(Wide), string(Short), string(JSON)} }

// Format is how messages are shown.
type Format struct {
	Style   Style // Text if empty
	ShowEnv bool
	Painter paint.Painter
	// Begin is what times are counted from in place of the age, in a replay.
	Begin time.Time
}

// describe puts the message into words.
func (e *entry) describe(before []byte) {
	var err error
	e.text = "removed"
	if !e.Tombstone() {
		e.text, e.urgent, err = describe(e.name, e.key, e.Data, before)
	}
	if err != nil {
		e.text, e.urgent = "can't be decoded: "+err.Error(), true
	}
}

func (v *view) line(e entry, now time.Time) (string, error) {
	switch v.format.Style {
	case JSON:
		return v.json(e)
	case Wide:
		return v.wide(e, now), nil
	case Short:
		return v.short(e), nil
	}
	return v.text(e, now), nil
}

func (v *view) text(e entry, now time.Time) string {
	p := v.format.Painter
	fields := []string{
		p.Paint(paint.Dim, e.Time.Format("15:04:05.000")), v.age(e, now), v.topic(e, e.name),
	}
	if pod := podName(e.ref); pod != "" {
		fields = append(fields, p.Paint(paint.Bold, words.OneLine(pod)))
	}
	return strings.Join(append(fields, v.what(e)), "  ")
}

func (v *view) wide(e entry, now time.Time) string {
	p := v.format.Painter
	daemon := words.OneLine(e.Header[bus.HeaderDaemon])
	fields := []string{
		p.Paint(paint.Dim, e.Time.Format("2006-01-02T15:04:05.000Z07:00")), v.age(e, now),
		p.Name(daemon, fmt.Sprintf("%-7s", daemon)),
		v.topic(e, strings.TrimSuffix(e.name+"."+e.key, ".")),
	}
	if pod := podName(e.ref); pod != "" {
		fields = append(fields, p.Paint(paint.Bold, words.OneLine(pod)))
	}
	return strings.Join(append(fields, v.what(e)), "  ")
}

func (v *view) short(e entry) string {
	p := v.format.Painter
	about := cmp.Or(podName(e.ref), e.name)
	return strings.Join([]string{
		p.Paint(paint.Dim, e.Time.Format("15:04:05")), p.Paint(paint.Bold, words.OneLine(about)), v.what(e),
	}, "  ")
}

// age is how old the message is, or how long after the begin of a replay it was.
func (v *view) age(e entry, now time.Time) string {
	text := words.Age(now.Sub(e.Time))
	if begin := v.format.Begin; !begin.IsZero() {
		text = "+" + words.Brief(max(0, e.Time.Sub(begin)))
	}
	return v.format.Painter.Paint(paint.Dim, fmt.Sprintf("%6s", text))
}

// topic is a name in the colour of the message's daemon.
func (v *view) topic(e entry, name string) string {
	return v.format.Painter.Name(cmp.Or(e.Header[bus.HeaderDaemon], e.name), fmt.Sprintf("%-13s", words.OneLine(name)))
}

func (v *view) what(e entry) string {
	text := words.OneLine(e.text)
	if e.urgent {
		text = v.format.Painter.Paint(paint.Yellow, text)
	}
	return text
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

func (v *view) json(e entry) (string, error) {
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
