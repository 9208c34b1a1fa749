package scale

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"

	"kubelot.dev/test/bench/fit"
)

// share is how much of a figure at the largest size a quadratic part may be before it is one. What is smaller is as
// well the end of a queue, or a cache that fills. A part of a fixed number of pods that grows with the others may be
// twice that: pods that come one after the other see half of the others on average. So may that of the bytes of a
// burst: with few pods a burst is over before there are many messages of one pod, so that with more pods there are
// more of each, up to a limit.
const share = 0.1

// Law is how one figure of one process, or of all, depends on the number of pods: Constant + Linear n + Quadratic n².
// That of a fixed number of pods has no quadratic term, and should have no linear one.
type Law struct {
	Figure    string   `json:"figure"`
	Of        string   `json:"of"`
	Unit      string   `json:"unit"`
	Constant  fit.Term `json:"constant"`
	Linear    fit.Term `json:"linear"`
	Quadratic fit.Term `json:"quadratic"`
	// At is the fitted value at the largest size, of which Share is the part that should not be there, and Least the
	// smallest share that would be significant.
	At          float64 `json:"at"`
	Share       float64 `json:"share"`
	Least       float64 `json:"least"`
	Significant bool    `json:"significant"`
	Kind        kind    `json:"kind"`
}

// kind is how a figure is judged.
type kind string

const (
	// level figures are of all pods at rest: they may be linear.
	level kind = "level"
	// burst figures are of all pods at once, and depend on the clock: they are shown and not judged.
	burst kind = "burst"
	// amount figures are the bytes of all pods at once, which don't depend on the clock: they may be linear.
	amount kind = "amount"
	// fixed figures are of a fixed number of pods, whatever the number of the others: they may not grow with that.
	fixed kind = "fixed"
)

// Failed reports whether the figure grows as it may not.
func (l Law) Failed() bool { return l.Kind != burst && l.Significant && l.Share > l.allowed() }

func (l Law) allowed() float64 {
	if l.Kind == fixed || l.Kind == amount {
		return 2 * share
	}
	return share
}

func (l Law) verdict() string {
	switch {
	case l.Failed() && l.Kind == fixed:
		return "GROWS WITH THE OTHERS"
	case l.Failed():
		return "QUADRATIC"
	case l.Kind == burst:
		return "not judged"
	case l.Least > 3*l.allowed():
		return "too noisy to tell"
	case l.Kind == fixed:
		return "constant"
	}
	return "linear"
}

// figure is one of Used's.
type figure struct {
	name, unit string
	kind       kind
	of         func(Used) float64
}

var figures = []figure{
	{"CPU to start", "s", burst, func(u Used) float64 { return u.StartCPU }},
	{"CPU idle", "millicores", level, func(u Used) float64 { return u.IdleCPU }},
	{"CPU of more pods", "s", fixed, func(u Used) float64 { return u.MoreCPU }},
	{"CPU to stop", "s", burst, func(u Used) float64 { return u.StopCPU }},
	{"PSS", "MiB", level, func(u Used) float64 { return u.PSS / mib }},
	{"read to start", "MiB", amount, func(u Used) float64 { return u.StartRead / mib }},
	{"written to start", "MiB", amount, func(u Used) float64 { return u.StartWritten / mib }},
	{"read idle, a minute", "MiB", level, func(u Used) float64 { return u.IdleRead / mib }},
	{"written idle, a minute", "MiB", level, func(u Used) float64 { return u.IdleWritten / mib }},
	{"read for more pods", "MiB", fixed, func(u Used) float64 { return u.MoreRead / mib }},
	{"written for more pods", "MiB", fixed, func(u Used) float64 { return u.MoreWritten / mib }},
	{"read to stop", "MiB", amount, func(u Used) float64 { return u.StopRead / mib }},
	{"written to stop", "MiB", amount, func(u Used) float64 { return u.StopWritten / mib }},
}

// shown are the figures in the table of points.
const shown = 5

const (
	mib   = 1 << 20
	whole = "all" // of all processes
)

// Judge fits every figure of all processes, then of each. The figures of the bus are what went over it.
func Judge(points []Point) ([]Law, error) {
	names := map[string]bool{}
	for _, p := range points {
		for name := range p.By {
			names[name] = true
		}
	}
	var all []Law
	add := func(f figure, of string, value func(Point) float64) error {
		l, err := law(points, f.kind, value)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", f.name, of, err)
		}
		l.Figure, l.Of, l.Unit = f.name, of, f.unit
		all = append(all, l)
		return nil
	}
	for _, f := range figures {
		if err := add(f, whole, func(p Point) float64 { return sum(p, f.of) }); err != nil {
			return nil, err
		}
	}
	err := errors.Join(
		add(figure{name: "run directory", unit: "MiB", kind: level}, whole, func(p Point) float64 { return p.Run / mib }),
		add(figure{name: "memory: PSS and run directory", unit: "MiB", kind: level}, whole, func(p Point) float64 {
			return (sum(p, func(u Used) float64 { return u.PSS }) + p.Run) / mib
		}),
		add(figure{name: "time to start", unit: "s", kind: burst}, whole, func(p Point) float64 { return p.Took[0] }),
		add(figure{name: "time to stop", unit: "s", kind: burst}, whole, func(p Point) float64 { return p.Took[1] }),
	)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, f := range figures {
			err = errors.Join(err, add(f, name, func(p Point) float64 { return f.of(p.By[name]) }))
		}
	}
	return all, err
}

func sum(p Point, of func(Used) float64) float64 {
	total := 0.0
	for _, used := range p.By {
		total += of(used)
	}
	return total
}

func law(points []Point, of kind, value func(Point) float64) (Law, error) {
	degree, weight := 2, func(n float64) float64 {
		// A figure's error is in proportion to the figure, more or less, and that to the number of pods.
		return 1 / max(1, n*n)
	}
	if of == fixed {
		degree, weight = 1, func(float64) float64 { return 1 }
	}
	var x, y, weights []float64
	for _, p := range points {
		n := float64(p.Pods)
		x, y, weights = append(x, n), append(y, value(p)), append(weights, weight(n))
	}
	f, err := fit.Weighted(x, y, weights, degree)
	if err != nil {
		return Law{}, err
	}
	l := Law{Kind: of, Constant: f.Terms[0], Linear: f.Terms[1]}
	if degree == 2 {
		l.Quadratic = f.Terms[2]
	}
	most := slices.Max(x)
	l.At = f.At(most)
	significant, least := f.Likely(degree)
	l.Significant = significant && f.Terms[degree].Value > 0
	if l.At > 0 {
		power := math.Pow(most, float64(degree))
		l.Share, l.Least = f.Terms[degree].Value*power/l.At, least*power/l.At
	}
	return l, nil
}

// minor are figures too small to be worth a failure, by unit.
var minor = map[string]float64{"s": 0.5, "millicores": 5, "MiB": 2}

// Verdict is an error that names what grows as it may not.
func Verdict(all []Law) error {
	var errs []error
	for _, l := range all {
		if l.Failed() && l.At > minor[l.Unit] {
			errs = append(errs, fmt.Errorf("%s of %s: %.0f %% of %.4g %s at the largest size should not be there", l.Figure,
				l.Of, 100*l.Share, l.At, l.Unit))
		}
	}
	return errors.Join(errs...)
}

// Table writes the laws: the small ones of single processes are in the JSON only.
func Table(w io.Writer, all []Law) error {
	out := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(out, "figure\tof\tconstant\tper pod\tat the largest\tgrowth\tseen from\t")
	for _, l := range all {
		if l.Of != whole && l.At < minor[l.Unit] {
			continue
		}
		fmt.Fprintf(out, "%s\t%s\t%.3g\t%.3g\t%.4g %s\t%.0f %%\t%.0f %%\t%s\n",
			l.Figure, l.Of, l.Constant.Value, l.Linear.Value, l.At, l.Unit, 100*l.Share, 100*l.Least, l.verdict())
	}
	return out.Flush()
}

// Points writes what was measured of all processes.
func Points(w io.Writer, points []Point) error {
	out := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "pods\tround\tall Ready\tall gone\t")
	for _, f := range figures[:shown] {
		fmt.Fprintf(out, "%s\t", f.name)
	}
	fmt.Fprintln(out, "run directory\tstore\tbus in, out: start\tidle, a minute\tmore\tstop\t")
	for _, p := range points {
		fmt.Fprintf(out, "%d\t%d\t%.1f s\t%.1f s\t", p.Pods, p.Round+1, p.Took[0], p.Took[1])
		for _, f := range figures[:shown] {
			fmt.Fprintf(out, "%.4g %s\t", sum(p, f.of), f.unit)
		}
		bus := p.By["bus"]
		fmt.Fprintf(out, "%.1f MiB\t%.1f MiB\t%.1f, %.1f MiB\t%.2f, %.2f MiB\t%.1f, %.1f MiB\t%.1f, %.1f MiB\t\n",
			p.Run/mib, p.Store/mib, bus.StartRead/mib, bus.StartWritten/mib, bus.IdleRead/mib, bus.IdleWritten/mib,
			bus.MoreRead/mib, bus.MoreWritten/mib, bus.StopRead/mib, bus.StopWritten/mib)
	}
	return out.Flush()
}

// Report is all that a run found.
type Report struct {
	Runtime string  `json:"runtime"`
	Laws    []Law   `json:"laws"`
	Points  []Point `json:"points"`
}
