package health

import (
	"fmt"
	"strings"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/words"
)

// Kind is what a check is about. A script chooses by it who is to act.
type Kind string

// The kinds, each before those that it may be the cause of.
const (
	Machine  Kind = "machine"  // the machine lacks something, or the command has no rights
	Runtime  Kind = "runtime"  // the container runtime doesn't answer, or isn't ready
	Bus      Kind = "bus"      // the bus doesn't answer, so that nothing is known of the daemons
	Daemon   Kind = "daemon"   // a daemon doesn't run, or can't do its job
	Degraded Kind = "degraded" // a daemon does only a part of its job
)

// kinds are all kinds in the order of cause and effect.
var kinds = []Kind{Machine, Runtime, Bus, Daemon, Degraded}

// Finding is the outcome of one check; without a problem it is good news.
type Finding struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	OK   bool   `json:"ok"`
	// Detail is what was found where all is well.
	Detail string `json:"detail,omitempty"`
	// Problem is what was found, Cause why it is so, Advice what to do.
	Problem string `json:"problem,omitempty"`
	Cause   string `json:"cause,omitempty"`
	Advice  string `json:"advice,omitempty"`
}

// Good is a finding that is good news.
func Good(kind Kind, name, detail string) Finding {
	return Finding{Name: name, Kind: kind, OK: true, Detail: detail}
}

// Bad is a finding that isn't.
func Bad(kind Kind, name, problem, cause, advice string) Finding {
	return Finding{Name: name, Kind: kind, Problem: problem, Cause: cause, Advice: advice}
}

// Count is how many findings of a kind are bad.
type Count struct {
	Kind Kind
	Bad  int
}

// Tally counts what is bad. The kind that is to be mended first comes first.
func Tally(findings []Finding) []Count {
	var counts []Count
	for _, kind := range kinds {
		bad := 0
		for _, f := range findings {
			if !f.OK && f.Kind == kind {
				bad++
			}
		}
		if bad > 0 {
			counts = append(counts, Count{kind, bad})
		}
	}
	return counts
}

// Text draws the findings. What others have written is kept on one line.
func Text(findings []Finding, p paint.Painter) string {
	var text strings.Builder
	for _, f := range findings {
		if f.OK {
			fmt.Fprintf(&text, "%s   %s: %s\n", p.Paint(paint.Green, "ok"), f.Name, words.OneLine(f.Detail))
			continue
		}
		fmt.Fprintf(&text, "%s  %s: %s\n", p.Paint(paint.Red, "BAD"), f.Name, words.OneLine(f.Problem))
		fmt.Fprintf(&text, "     cause: %s\n     -> %s\n", words.OneLine(f.Cause), f.Advice)
	}
	return text.String()
}
