package soak

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"kubelot.dev/test/bench/fit"
)

// leastSamples of the second half are enough for a line with an error that says something.
const leastSamples = 6

// Growth is what became of one measure of one thing over the second half of the samples.
type Growth struct {
	Of      string  `json:"of"`
	Measure string  `json:"measure"`
	Unit    string  `json:"unit,omitempty"`
	First   float64 `json:"first"` // of the second half
	Last    float64 `json:"last"`
	// PerPod is the line's slope, and Limit what it may be, with the reason.
	PerPod fit.Term `json:"perPod"`
	Limit  float64  `json:"limit"`
	Why    string   `json:"why"`
	// Least is the smallest slope that would be significant.
	Least       float64 `json:"least"`
	Significant bool    `json:"significant"`
	// Shows is where growth shows that is hidden here; empty if nowhere.
	Shows string `json:"shows,omitempty"`
}

// unseen is how many times its limit growth may be without being seen: a KiB of memory for each pod.
const unseen = 8

// Failed reports whether it grows with the pods that have gone.
func (g Growth) Failed() bool { return g.Significant && g.PerPod.Value > g.Limit }

// Blind reports whether a leak would not have shown, here or elsewhere.
func (g Growth) Blind() bool { return !g.Failed() && g.hides() && g.Shows == "" }

// hides reports whether growth must be a leak to show.
func (g Growth) hides() bool { return g.Least > unseen*g.Limit }

func (g Growth) verdict() string {
	switch {
	case g.Failed():
		return "GROWS"
	case g.Blind():
		return "TOO NOISY TO SEE A LEAK"
	case g.hides():
		return "noisy; a leak shows " + g.Shows
	}
	return "ok"
}

// shows is where else a leak shows. What the bus holds is compared at rest. What a process keeps is in its heap after a
// collection, without the noise of collections, and the PSS of all is the sum of theirs.
func (g Growth) shows(all []Growth) string {
	switch {
	case g.Measure == pss.name:
		return "in the processes"
	case g.Of == "kubelot-bus" && (g.Measure == private.name || g.Measure == heap.name), g.Of == storeName,
		strings.HasPrefix(g.Of, streamName):
		return "at rest"
	case g.Measure == private.name && slices.ContainsFunc(all, func(other Growth) bool {
		return other.Of == g.Of && other.Measure == heap.name && !other.hides()
	}):
		return "in the heap"
	}
	return ""
}

// Judge fits the second half of the samples. Samples that are too few are an error.
func Judge(samples []Sample) ([]Growth, error) {
	half := samples[len(samples)/2:]
	if len(half) < leastSamples {
		return nil, fmt.Errorf("the second half has %d samples, and a line needs %d: let it run longer: %w", len(half),
			leastSamples, fit.ErrFew)
	}
	var all []Growth
	for _, s := range collect(half) {
		if len(s.y) < leastSamples {
			continue // of a daemon that has just come
		}
		line, err := fit.Polynomial(s.pods, s.y, 1)
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", s.name, s.of, err)
		}
		g := Growth{
			Of: s.of, Measure: s.name, Unit: s.unit, First: s.y[0], Last: s.y[len(s.y)-1],
			PerPod: line.Terms[1], Limit: s.limit, Why: s.why,
		}
		g.Significant, g.Least = line.Significant(1)
		all = append(all, g)
	}
	for i, g := range all {
		all[i].Shows = g.shows(all)
	}
	return all, nil
}

// Verdict is an error that names what grows or what can't be seen to, daemons that were started again, and a history
// that is larger than it may be.
func Verdict(samples []Sample, all []Growth) error {
	var errs []error
	for _, g := range all {
		switch {
		case g.Failed():
			errs = append(errs,
				fmt.Errorf("%s of %s grow by %.4g %s for each pod that came and went (± %.2g); the limit is %g: %s",
					g.Measure, g.Of, g.PerPod.Value, g.Unit, g.PerPod.StdErr, g.Limit, g.Why))
		case g.Blind():
			// With as many samples the error goes down as the pods become more.
			errs = append(errs, fmt.Errorf(
				"%s of %s would not have shown if they grew by less than %.2g %s for each pod, and the limit is %g: let it run "+
					"%.1f times as long", g.Measure, g.Of, g.Least, g.Unit, g.Limit, g.Least/(unseen*g.Limit)))
		}
	}
	errs = append(errs, restarted(samples), full(samples[len(samples)-1].Reading))
	return errors.Join(errs...)
}

// restarted is an error where a daemon wasn't the same process at two samples in a row.
func restarted(samples []Sample) error {
	var errs []error
	for i := 1; i < len(samples); i++ {
		before, now := samples[i-1], samples[i]
		if err := now.Restarted(before.Reading); err != nil {
			errs = append(errs, fmt.Errorf("between %d and %d pods: %w", before.Pods, now.Pods, err))
		}
	}
	return errors.Join(errs...)
}

// Table writes what became of each measure.
func Table(w io.Writer, all []Growth) error {
	out := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(out, "of\tmeasure\tat half\tat the end\tper pod\t± error\tseen from\tlimit\t")
	for _, g := range all {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%.4g\t%.2g\t%.2g\t%g\t%s\n", g.Of, g.Measure, amount(g.First, g.Unit),
			amount(g.Last, g.Unit),
			g.PerPod.Value, g.PerPod.StdErr, g.Least, g.Limit, g.verdict())
	}
	return out.Flush()
}

func amount(v float64, unit string) string {
	if unit == "B" {
		return fmt.Sprintf("%.2f MiB", v/(1<<20))
	}
	return fmt.Sprintf("%.0f", v)
}

// Report is all that a run found.
type Report struct {
	Runtime string   `json:"runtime"`
	Seconds float64  `json:"seconds"`
	Growth  []Growth `json:"growth"`
	Samples []Sample `json:"samples"`
}
