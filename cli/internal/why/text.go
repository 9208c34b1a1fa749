package why

import (
	"fmt"
	"strings"
	"time"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/words"
)

// shown is how many moments of the timeline are drawn.
const shown = 40

var colours = map[State]paint.Colour{Ready: paint.Green, Waiting: paint.Yellow, Stopping: paint.Yellow}

// Text draws the answer.
func Text(a Answer, now time.Time, p paint.Painter) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s is %s", p.Paint(paint.Bold, words.OneLine(a.Namespace+"/"+a.Name)),
		p.Paint(colours[a.State], string(a.State)))
	if a.Detail != "" {
		fmt.Fprintf(&out, ": %s", words.OneLine(a.Detail))
	}
	if !a.Since.IsZero() {
		fmt.Fprintf(&out, " (on this node for %s)", words.Age(now.Sub(a.Since)))
	}
	out.WriteByte('\n')
	for _, c := range a.Causes {
		fmt.Fprintf(&out, "\n  %s: %s\n", p.Paint(paint.Bold, words.OneLine(c.What)), words.OneLine(c.Problem))
		if c.Advice != "" {
			fmt.Fprintf(&out, "    -> %s\n", words.OneLine(c.Advice))
		}
	}
	if len(a.Timeline) == 0 {
		return out.String()
	}
	moments := a.Timeline[max(0, len(a.Timeline)-shown):]
	out.WriteString("\nTimeline")
	if earlier := len(a.Timeline) - len(moments); earlier > 0 {
		fmt.Fprintf(&out, " (%d earlier; -o json shows all)", earlier)
	}
	out.WriteByte('\n')
	for _, m := range moments {
		text := words.OneLine(m.What)
		if m.Times > 1 {
			text += fmt.Sprintf(" (%d times, last %s ago)", m.Times, words.Age(now.Sub(m.Last)))
		}
		if m.Bad {
			text = p.Paint(paint.Yellow, text)
		}
		fmt.Fprintf(&out, "  %s  %s\n", p.Paint(paint.Dim, offset(m.At, a.Since)), text)
	}
	return out.String()
}

// offset is when something happened, seen from when the node first saw the pod.
func offset(at, since time.Time) string {
	if since.IsZero() {
		return at.Format("15:04:05.000")
	}
	return fmt.Sprintf("%+9.3fs", at.Sub(since).Seconds())
}
