package conformance

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Row is a spec with both agents' results.
type Row struct {
	Spec             string
	Kubelot, Kubelet Result
	Limit            string // why it can't pass on this machine, or empty
	Differs          string // why kubelot fails it on purpose, or empty
	Fault            string // what is wrong, or empty
}

// Rules are what results are judged by.
type Rules struct {
	Limits  []Limit
	Differs []Limit
	Passes  []string // the specs that must pass
	// KubeletToo is for results of the kubelet that are not old ones, kept for the comparison: it must pass Passes too.
	KubeletToo bool
}

// Compare judges every spec that one of the agents ran or lost.
func Compare(kubelot, kubelet Results, rules Rules) []Row {
	specs := map[string]bool{}
	for _, results := range []Results{kubelot, kubelet} {
		for spec := range results {
			specs[spec] = true
		}
	}
	var rows []Row
	for _, spec := range slices.Sorted(maps.Keys(specs)) {
		row := Row{
			Spec: spec, Kubelot: of(kubelot, spec), Kubelet: of(kubelet, spec),
			Limit: reason(rules.Limits, spec), Differs: reason(rules.Differs, spec),
		}
		row.Fault = fault(row, slices.Contains(rules.Passes, spec), rules.KubeletToo)
		rows = append(rows, row)
	}
	// What is wrong comes first.
	slices.SortStableFunc(rows, func(a, b Row) int { return order(a) - order(b) })
	return rows
}

func of(results Results, spec string) Result {
	if result, ok := results[spec]; ok {
		return result
	}
	return Result{Outcome: NotRun}
}

func fault(row Row, listed, kubeletToo bool) string {
	onPurpose := row.Differs != "" && row.Kubelot.Outcome == Failed
	if row.Kubelot.Outcome.short() && !onPurpose {
		if f := shortOf(row, listed); f != "" {
			return f
		}
	}
	switch {
	case row.Differs != "" && row.Kubelot.Outcome == Passed:
		return "differs.txt says that kubelot fails it"
	case kubeletToo && listed && row.Kubelet.Outcome.short():
		return "passes.txt says that the kubelet passes it, which it doesn't"
	case row.Kubelet.Outcome == Failed && row.Limit == "" && row.Kubelot.Outcome != Passed:
		return "the kubelet fails too: say why in limits.txt"
	default:
		return ""
	}
}

// shortOf is the fault of a row in which kubelot falls short of the spec, and not on purpose.
func shortOf(row Row, listed bool) string {
	switch {
	case row.Kubelet.Outcome == Passed:
		return "the kubelet passes it here"
	case listed:
		return "passes.txt says that the kubelet passes it"
	case row.Kubelot.Outcome == Failed && row.Kubelet.Outcome == NotRun && row.Limit == "":
		return "not in limits.txt, and the kubelet wasn't asked"
	default:
		return ""
	}
}

func order(row Row) int {
	switch {
	case row.Fault != "":
		return 0
	case row.failed():
		return 1
	default:
		return 2
	}
}

// failed reports whether one of the agents fell short of what the spec asks; a spec that was skipped asked nothing.
func (r Row) failed() bool {
	return slices.ContainsFunc([]Outcome{r.Kubelot.Outcome, r.Kubelet.Outcome},
		func(o Outcome) bool { return o == Failed || o == Lost })
}

// Fine reports whether there is nothing to say of the row.
func (r Row) Fine() bool { return order(r) == 2 && r.Kubelot.Outcome != Skipped }

// Faults counts the rows that are wrong.
func Faults(rows []Row) int {
	count := 0
	for _, row := range rows {
		if row.Fault != "" {
			count++
		}
	}
	return count
}

// WriteTable writes a line per spec, and what is to be said of it below.
func WriteTable(w io.Writer, rows []Row) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%-8s %-8s %s\n", "kubelot", "kubelet", "spec")
	for _, row := range rows {
		fmt.Fprintf(&out, "%-8s %-8s %s\n", row.Kubelot.Outcome, row.Kubelet.Outcome, row.Spec)
		for _, note := range []struct{ label, text string }{
			{"wrong", row.Fault},
			{"limit", limitOf(row)},
			{"differs", row.Differs},
			{"kubelot", firstLine(row.Kubelot.Message)},
			{"kubelet", firstLine(row.Kubelet.Message)},
		} {
			if note.text != "" {
				fmt.Fprintf(&out, "%18s%s: %s\n", "", note.label, note.text)
			}
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// limitOf leaves the limit out where nothing failed.
func limitOf(row Row) string {
	if row.failed() {
		return row.Limit
	}
	return ""
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	const enough = 300
	if len(line) > enough {
		return line[:enough] + "..."
	}
	return line
}

// Summary is one line per agent that was run.
func Summary(rows []Row) string {
	var out strings.Builder
	for _, agent := range []struct {
		name string
		of   func(Row) Outcome
	}{
		{"kubelot", func(r Row) Outcome { return r.Kubelot.Outcome }},
		{"kubelet", func(r Row) Outcome { return r.Kubelet.Outcome }},
	} {
		count := map[Outcome]int{}
		for _, row := range rows {
			count[agent.of(row)]++
		}
		if asked := len(rows) - count[NotRun]; asked > 0 {
			fmt.Fprintf(&out, "%s: %d specs, %d passed, %d failed, %d skipped, %d lost\n",
				agent.name, asked, count[Passed], count[Failed], count[Skipped], count[Lost])
		}
	}
	return out.String()
}
