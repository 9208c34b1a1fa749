// Package report is the benchmark's result: what each subject did in each round, in a file that is written after
// each of them, and the medians, spreads and ratios that follow from it.
//
// Reads and writes: the file it is told to. Owns: nothing.
//
// Guarantees: an interrupted run has lost at most the round of the subject that was being measured. A figure that
// wasn't measured is missing; it is never zero.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"kubelot.dev/test/bench/agent"
	"kubelot.dev/test/bench/measure"
)

// Schema is the version of the file's shape; fields are only ever added to it.
const Schema = 1

// The subjects.
const (
	Baseline = "baseline"        // bare CRI calls
	Hollow   = "hollow"          // and the requests to the API server that no agent can do without
	Kubelet  = "kubelet"         // upstream
	Kubelot  = "kubelot"         // a process per daemon
	Compact  = "kubelot-compact" // the same daemons in fewer processes
)

// Subjects are all, in the order in which they are shown.
var Subjects = []string{Baseline, Hollow, Kubelet, Kubelot, Compact}

// Report is the content of the file.
type Report struct {
	Schema  int       `json:"schema"`
	Begun   time.Time `json:"begun"`
	Version string    `json:"version"` // of kubelot
	Machine Machine   `json:"machine"`
	Setup   Setup     `json:"setup"`
	Rounds  []Round   `json:"rounds"`
}

// Machine is where it was measured.
type Machine struct {
	CPUs   int    `json:"cpus"`
	Memory int64  `json:"memory"` // bytes
	Kernel string `json:"kernel"`
}

// Setup is what was measured.
type Setup struct {
	Pods   int      `json:"pods"`             // at once, where a measure doesn't say
	Churn  int      `json:"churn"`            // pods that have come and gone before memory is read
	Probed int      `json:"probed,omitempty"` // pods with a probe each second
	Parts  []string `json:"parts"`
	Rounds int      `json:"rounds"`
	// Rest is how long an agent rests after churn before its memory is read, in seconds; 0 in an older report.
	Rest float64 `json:"rest,omitempty"`
	// Runs is how many runs a joined report is from; 0 is one.
	Runs int `json:"runs,omitempty"`
}

// Round is what one subject did in one round.
type Round struct {
	Round   int             `json:"round"` // from 1
	Subject string          `json:"subject"`
	Took    float64         `json:"took"` // seconds
	Figures measure.Figures `json:"figures"`
	// Held is the agent's memory behind the figures memory.*.
	Held *agent.Held `json:"held,omitempty"`
}

// Load reads a report.
func Load(path string) (Report, error) {
	var r Report
	data, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("read report: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("read report %s: %w", path, err)
	}
	if r.Schema != Schema {
		return r, fmt.Errorf("report %s has schema %d, want %d: measure again", path, r.Schema, Schema)
	}
	return r, nil
}

// Save writes the report in one go: a reader never sees half of it.
func (r Report) Save(path string) error { return measure.Save(path, r) }

// Join puts the rounds of several reports into one, as of parts that were measured in runs of their own. A round's
// figures join those of the same subject's round of the same number; the first report says the rest.
func Join(all []Report) Report {
	joined := all[0]
	joined.Rounds, joined.Setup.Runs = nil, 0
	for _, r := range all {
		joined.Setup.Runs += max(1, r.Setup.Runs)
		for _, round := range r.Rounds {
			joined.add(round)
		}
		// The report that measured a part knows with how many pods.
		if slices.Contains(r.Setup.Parts, "probes") {
			joined.Setup.Probed = r.Setup.Probed
		}
		if slices.Contains(r.Setup.Parts, "memory") {
			joined.Setup.Churn, joined.Setup.Rest = r.Setup.Churn, r.Setup.Rest
		}
		for _, part := range r.Setup.Parts {
			if !slices.Contains(joined.Setup.Parts, part) {
				joined.Setup.Parts = append(slices.Clip(joined.Setup.Parts), part)
			}
		}
	}
	return joined
}

func (r *Report) add(round Round) {
	for i, known := range r.Rounds {
		if known.Round == round.Round && known.Subject == round.Subject {
			merged := measure.Figures{}
			merged.Add(known.Figures)
			merged.Add(round.Figures)
			r.Rounds[i].Figures = merged
			r.Rounds[i].Took += round.Took
			if round.Held != nil {
				r.Rounds[i].Held = round.Held
			}
			return
		}
	}
	r.Rounds = append(r.Rounds, round)
}

// RoundsOf is in how many rounds a part was measured, by the part, which is the first word of its figures' keys.
func (r Report) RoundsOf() map[string]int {
	seen := map[string]map[int]bool{}
	for _, round := range r.Rounds {
		for key := range round.Figures {
			part, _, _ := strings.Cut(key, ".")
			if seen[part] == nil {
				seen[part] = map[int]bool{}
			}
			seen[part][round.Round] = true
		}
	}
	counts := map[string]int{}
	for part, rounds := range seen {
		counts[part] = len(rounds)
	}
	return counts
}

// Has reports whether the subject was measured.
func (r Report) Has(subject string) bool {
	return slices.ContainsFunc(r.Rounds, func(round Round) bool { return round.Subject == subject })
}

// Held is the memory of the subject's round whose total is the median.
func (r Report) Held(subject string) (agent.Held, bool) {
	var all []agent.Held
	for _, round := range r.Rounds {
		if round.Subject == subject && round.Held != nil {
			all = append(all, *round.Held)
		}
	}
	if len(all) == 0 {
		return agent.Held{}, false
	}
	return agent.Middle(all), true
}
