// Package goals is what kubelot is to reach, as data, and how far it got.
//
// Reads, writes, owns: nothing but its arguments.
//
// Guarantees: a goal that wasn't measured is neither met nor missed.
package goals

import (
	"fmt"
	"io"

	"kubelot.dev/test/bench/report"
)

// Kind is how a figure is compared.
type Kind string

// The kinds.
const (
	Times    Kind = "x"    // the base's figure in the same round is multiplied by the limit
	Above    Kind = "more" // the limit is added to the base's figure in the same round
	Absolute Kind = "itself"
)

// Goal is an upper limit.
type Goal struct {
	Measure string
	Subject string
	Keys    []string // of the figures whose sum counts
	Kind    Kind
	Base    string // subject to compare with
	Limit   float64
	Unit    report.Unit // of the limit, unless it is a factor
	// Quick is the margin, as a share of the limit or of what is held, by which the quick form lets a figure be worse;
	// zero leaves the goal out, as it depends on the clock or on a long run.
	Quick float64
	// Held is what the quick form has shown where that is worse than the limit: it must not get worse. The quick form
	// reads memory soon after a burst, so that it shows more than the full one.
	Held float64
}

const (
	mib    = 1 << 20
	millis = 0.001
)

// For are the goals with so many pods at once.
func For(pods int) []Goal {
	burst := fmt.Sprintf("burst.%d.", pods)
	n := fmt.Sprint(pods)
	kubelot := func(measure string, kind Kind, base string, limit float64, keys ...string) Goal {
		return Goal{Measure: measure, Subject: report.Kubelot, Keys: keys, Kind: kind, Base: base, Limit: limit}
	}
	compact := kubelot("memory with "+n+" idle pods after churn, compact", Times, report.Kubelet, 0.8, "memory.total")
	compact.Subject = report.Compact
	return []Goal{
		kubelot("memory with "+n+" idle pods after churn, ten processes", Times, report.Kubelet, 1.25, "memory.total").
			quick(0.15).held(1.6),
		compact.quick(0.15).held(1),
		kubelot("kubelot-bus after churn, private memory and store", Absolute, "", 25*mib, "memory.bus").
			in(report.MiB).quick(0.1).held(40 * mib),
		kubelot("private memory of an idle daemon before any pod, median", Absolute, "", 4*mib, "fresh.private.median").
			in(report.MiB).quick(0.1).held(8 * mib),
		kubelot("private memory of the largest idle daemon before any pod", Absolute, "", 4*mib, "fresh.private.largest").
			in(report.MiB).quick(0.1).held(13 * mib),
		kubelot("exec probes at 1 s, idle CPU", Times, report.Kubelet, 0.8, "probes.exec.idle").
			quick(0.25).held(1),
		kubelot("CPU to start and stop "+n+" pods", Times, report.Kubelet, 0.9, burst+"cpu.start", burst+"cpu.stop").
			quick(0.5).held(1), // one agent's figure varies by as much between two runs on a shared machine
		kubelot(n+" deleted at once, median", Times, report.Kubelet, 0.5, burst+"delete.p50"),
		kubelot(n+" deleted at once, last", Times, report.Kubelet, 0.85, burst+"delete.last"),
		kubelot(n+" created at once, last", Times, report.Hollow, 1.15, burst+"create.last"),
		kubelot("one pod, create to Ready", Above, report.Baseline, 30*millis,
			"latency.create.p50").in(report.Millis).quick(2),
		kubelot("one pod with a CSI volume that is attached, create to Ready", Times, report.Kubelet, 0.5,
			"volumes.attach.p50"),
		kubelot("110 pods at once with a device each, by 110 without", Absolute, "", 1.2, "devices.ratio").
			in(report.Factor),
	}
}

// in gives the limit a unit.
func (g Goal) in(unit report.Unit) Goal {
	g.Unit = unit
	return g
}

// quick lets the quick form judge the goal, with a margin.
func (g Goal) quick(margin float64) Goal {
	g.Quick = margin
	return g
}

// held is what the quick form holds kubelot to as long as the goal is missed.
func (g Goal) held(figure float64) Goal {
	g.Held = figure
	return g
}

// Verdict is how far a goal was reached.
type Verdict struct {
	Goal
	report.Spread
}

// Measured reports whether there is a figure.
func (v Verdict) Measured() bool { return v.Rounds > 0 }

// Met reports whether the median of the rounds is within the limit. What isn't measured, or isn't a number, isn't met.
func (v Verdict) Met() bool { return v.Measured() && v.Median <= v.Limit }

// Judge compares a report with the goals.
func Judge(r report.Report, all []Goal) []Verdict {
	var verdicts []Verdict
	for _, g := range all {
		v := Verdict{Goal: g}
		switch g.Kind {
		case Times:
			v.Spread = r.Compare(g.Subject, g.Base, report.Ratio, g.Keys...)
		case Above:
			v.Spread = r.Compare(g.Subject, g.Base, report.Difference, g.Keys...)
		case Absolute:
			v.Spread = r.Of(g.Subject, g.Keys...)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// bound is what the quick form lets pass: the limit, or what is held where that is more, and the margin.
func (g Goal) bound() float64 { return max(g.Limit, g.Held) * (1 + g.Quick) }

// Bound is that as text.
func (g Goal) Bound() string { return g.text(g.bound()) }

func (v Verdict) holds() bool { return v.Measured() && v.Median <= v.bound() }

// Missed are the goals of the quick form whose figures are worse than what they are held to. A goal that had to be
// measured, since its subjects were, and wasn't, is missed too.
func Missed(r report.Report, verdicts []Verdict) []Verdict {
	var missed []Verdict
	for _, v := range verdicts {
		there := r.Has(v.Subject) && (v.Base == "" || r.Has(v.Base))
		if v.Quick > 0 && there && !v.holds() {
			missed = append(missed, v)
		}
	}
	return missed
}

// text is a value of the goal's kind.
func (g Goal) text(value float64) string {
	switch g.Kind {
	case Times:
		return fmt.Sprintf("%.2f x %s", value, g.Base)
	case Above:
		return g.Base + " + " + g.Unit.Format(value)
	case Absolute:
	}
	return g.Unit.Format(value)
}

// Word is "met", "missed" or "not measured".
func (v Verdict) Word() string {
	switch {
	case !v.Measured():
		return "not measured"
	case v.Met():
		return "met"
	default:
		return "missed"
	}
}

// String is the verdict in one line.
func (v Verdict) String() string {
	figure := "-"
	if v.Measured() {
		figure = v.text(v.Median)
	}
	return fmt.Sprintf("%s: %s, at most %s", v.Measure, figure, v.text(v.Limit))
}

// Table writes the verdicts in Markdown.
func Table(w io.Writer, verdicts []Verdict) error {
	if _, err := fmt.Fprintf(w, "| measure | goal | figure | of the rounds | |\n|---|---|---|---|---|\n"); err != nil {
		return err
	}
	for _, v := range verdicts {
		figure, rounds := "-", "-"
		if v.Measured() {
			figure = v.text(v.Median)
			rounds = fmt.Sprintf("%s to %s", v.text(v.Least), v.text(v.Most))
		}
		limit := v.text(v.Limit)
		_, err := fmt.Fprintf(w, "| %s | at most %s | %s | %s | %s |\n", v.Measure, limit, figure, rounds, v.Word())
		if err != nil {
			return err
		}
	}
	return nil
}
