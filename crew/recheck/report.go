package recheck

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what a check has found.
type Report struct {
	// Kubelot is the version that wrote the recording. From and To are when its messages are from.
	Kubelot  string    `json:"kubelotVersion,omitempty"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Messages int       `json:"messages"`
	Pods     int       `json:"pods"`
	// Cores are the pure cores, with how many decisions of each were judged.
	Cores []*Core `json:"cores"`
	// Differences are the decisions that this version makes otherwise, in the order of their times.
	Differences []Difference `json:"differences"`
	// Notes say what the recording lacks.
	Notes []string `json:"notes,omitempty"`
}

// Core is what was found of one core.
type Core struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	// Same are the recorded decisions that this version makes too.
	Same int `json:"same"`
	// Different counts the differences.
	Different int `json:"different"`
	// Unjudged counts the recorded decisions that can't be judged, by the reason.
	Unjudged map[string]int `json:"unjudged,omitempty"`
}

// Difference is a decision that this version makes otherwise.
type Difference struct {
	At time.Time `json:"at"`
	// Core is the name of the core, Object what was decided about.
	Core   string `json:"core"`
	Object string `json:"object"`
	// Recorded is what was decided, Now what this version decides.
	Recorded string `json:"recorded"`
	Now      string `json:"now"`
}

func (r *Report) core(name, doc string) *Core {
	c := &Core{Name: name, Doc: doc, Unjudged: map[string]int{}}
	r.Cores = append(r.Cores, c)
	return c
}

// differs notes a difference.
func (r *Report) differs(c *Core, d Difference) {
	d.Core = c.Name
	c.Different++
	r.Differences = append(r.Differences, d)
}

// finish puts the differences in order.
func (r *Report) finish() {
	slices.SortStableFunc(r.Differences, func(a, b Difference) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Core, b.Core), strings.Compare(a.Object, b.Object))
	})
}

// text is the report for a person.
func (r *Report) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d messages of %s, about %d pods", r.Messages, r.To.Sub(r.From).Round(time.Second), r.Pods)
	if r.Kubelot != "" {
		fmt.Fprintf(&out, ", recorded by kubelot %s", r.Kubelot)
	}
	out.WriteString("\n\n")
	for _, c := range r.Cores {
		unjudged := 0
		for _, n := range c.Unjudged {
			unjudged += n
		}
		fmt.Fprintf(&out, "%-8s %5d same %5d different %5d not judged   %s\n", c.Name, c.Same, c.Different, unjudged, c.Doc)
	}
	for _, c := range r.Cores {
		for _, reason := range slices.Sorted(maps.Keys(c.Unjudged)) {
			fmt.Fprintf(&out, "\nnot judged, %s: %d: %s", c.Name, c.Unjudged[reason], reason)
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&out, "\nnote: %s", note)
	}
	if len(r.Differences) == 0 {
		return strings.TrimRight(out.String(), "\n") + "\n\nThis version decides as was recorded.\n"
	}
	out.WriteString("\n")
	for _, d := range r.Differences {
		fmt.Fprintf(&out, "\n%s  %s  %s\n  recorded: %s\n  now:      %s\n", d.At.UTC().Format("15:04:05.000"), d.Core,
			d.Object, d.Recorded, d.Now)
	}
	return out.String()
}
