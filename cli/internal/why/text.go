package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/words"
)

const (
	// shown is how many moments of the timeline are drawn.
	shown = 30
	// longest is how much of a reported text is drawn, in characters. JSON has all of it.
	longest = 600
	// longestSentence is how much of a sentence is.
	longestSentence = 400
)

var colours = map[State]paint.Colour{Ready: paint.Green, Waiting: paint.Yellow, Stopping: paint.Yellow}

// drawing is an answer that is being drawn.
type drawing struct {
	strings.Builder
	paint.Painter
	now  time.Time
	seen shownOnce
}

// Text draws the answer: the cause, what is waited for, what to do, and what has happened.
func Text(a Answer, now time.Time, p paint.Painter) string {
	out := &drawing{Painter: p, now: now}
	name := out.Paint(paint.Bold, words.OneLine(strings.TrimPrefix(a.Namespace+"/"+a.Name, "/")))
	subject := name
	if a.Sentence != "" {
		fmt.Fprintf(out, "%s: %s.\n", name, sentence(a.Sentence))
		subject = "It"
	}
	fmt.Fprintf(out, "%s is %s", subject, out.Paint(colours[a.State], string(a.State)))
	if a.Detail != "" {
		fmt.Fprintf(out, ": %s", words.Clip(words.OneLine(a.Detail), longest))
		out.seen.text(words.OneLine(a.Detail))
	}
	if !a.Since.IsZero() {
		fmt.Fprintf(out, " (on this node for %s)", words.Age(now.Sub(a.Since)))
	}
	out.WriteByte('\n')
	out.causes(a.Causes, a.Detail)
	out.timeline(a)
	return out.String()
}

// sentence is one line without the full stop, which the drawing adds.
func sentence(text string) string {
	return strings.TrimRight(words.Clip(words.OneLine(text), longestSentence), ". ")
}

// causes draws all causes; the first one's sentence has been drawn, and so has what is in told.
func (d *drawing) causes(causes []Cause, told string) {
	for i, c := range causes {
		d.WriteByte('\n')
		if i > 0 {
			fmt.Fprintf(d, "  also: %s.\n", sentence(c.Sentence))
		}
		if waits := d.waits(c); waits != "" {
			fmt.Fprintf(d, "  waits for: %s\n", waits)
		}
		if c.Advice != "" && !slices.ContainsFunc(causes[:i], func(o Cause) bool { return o.Advice == c.Advice }) {
			fmt.Fprintf(d, "  -> %s\n", d.Paint(paint.Bold, words.OneLine(c.Advice)))
		}
		if c.Problem != "" && !strings.Contains(told, c.Problem) {
			problem := words.Clip(d.seen.text(words.OneLine(c.Problem)), longest)
			fmt.Fprintf(d, "  reported: %s: %s\n", words.OneLine(c.What), problem)
		}
	}
}

// waits is what is waited for and until when.
func (d *drawing) waits(c Cause) string {
	text := words.OneLine(c.Waits)
	if c.Until.IsZero() {
		return text
	}
	until := fmt.Sprintf("at %s (in %s)", c.Until.UTC().Format("15:04:05 UTC"), words.Age(c.Until.Sub(d.now)))
	if text == "" {
		return "the next try " + until
	}
	return text + "; kubelot acts " + until
}

func (d *drawing) timeline(a Answer) {
	if len(a.Timeline) == 0 {
		return
	}
	moments := a.Timeline[max(0, len(a.Timeline)-shown):]
	d.WriteString("\nTimeline")
	if earlier := len(a.Timeline) - len(moments); earlier > 0 {
		fmt.Fprintf(d, " (%d earlier; -o json shows all)", earlier)
	}
	d.WriteByte('\n')
	for _, m := range moments {
		text := words.Clip(d.seen.text(words.OneLine(m.What)), longest)
		if m.Times > 1 {
			text += fmt.Sprintf(" (%d times, last %s ago)", m.Times, words.Age(d.now.Sub(m.Last)))
		}
		if m.Bad {
			text = d.Paint(paint.Yellow, text)
		}
		fmt.Fprintf(d, "  %s  %s\n", d.Paint(paint.Dim, offset(m.At, a.Since)), text)
	}
}

// offset is when something happened, seen from when the node first saw the pod.
func offset(at, since time.Time) string {
	if since.IsZero() {
		return at.Format("15:04:05.000")
	}
	return fmt.Sprintf("%+9.3fs", at.Sub(since).Seconds())
}
