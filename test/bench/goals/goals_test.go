package goals

import (
	"math"
	"strings"
	"testing"

	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/bench/report"
)

// within has a figure that meets each goal exactly.
func within(g Goal) report.Report {
	base := map[Kind]float64{Times: 1000}[g.Kind]
	limit := map[Kind]float64{Times: g.Limit * base, Above: g.Limit, Absolute: g.Limit}[g.Kind]
	figures, bases := measure.Figures{}, measure.Figures{}
	for _, key := range g.Keys {
		figures[key], bases[key] = limit/float64(len(g.Keys)), base/float64(len(g.Keys))
	}
	r := report.Report{Rounds: []report.Round{{Round: 1, Subject: g.Subject, Figures: figures}}}
	if g.Base != "" {
		r.Rounds = append(r.Rounds, report.Round{Round: 1, Subject: g.Base, Figures: bases})
	}
	return r
}

func TestEachGoalCanBeMetAndMissed(t *testing.T) {
	for _, g := range For(100) {
		judge := func(r report.Report) Verdict { return Judge(r, []Goal{g})[0] }
		// Rounding is not what is tested here.
		r := within(g)
		scale := func(by float64) {
			for key := range r.Rounds[0].Figures {
				r.Rounds[0].Figures[key] *= by
			}
		}
		scale(1 - 1e-9)
		if v := judge(r); v.Word() != "met" || len(Missed(r, []Verdict{v})) > 0 {
			t.Errorf("%s: %s with the figure of the goal", v, v.Word())
		}
		scale(1.001)
		if v := judge(r); v.Word() != "missed" || len(Missed(r, []Verdict{v})) > 0 {
			t.Errorf("%s: %s with a figure above the goal, and within the quick form's margin", v, v.Word())
		}
		scale(10)
		v := judge(r)
		if v.Word() != "missed" {
			t.Errorf("%s: %s with ten times the goal", v, v.Word())
		}
		if missed := Missed(r, []Verdict{v}); (len(missed) == 1) != (g.Quick > 0) {
			t.Errorf("%s: %d missed in the quick form, margin %v", v, len(missed), g.Quick)
		}
	}
}

// The quick form passes a figure that misses its goal as long as it is no worse than it was, within the margin.
func TestTheQuickFormHoldsToWhatWasShown(t *testing.T) {
	g := Goal{Subject: report.Kubelot, Keys: []string{"a"}, Kind: Absolute, Unit: report.MiB, Limit: 25 * mib}
	g = g.quick(0.1).held(40 * mib)
	if got := g.Bound(); got != "44.0 MiB" {
		t.Errorf("the bound is %s, want 40 MiB and a tenth", got)
	}
	for figure, missed := range map[float64]int{20 * mib: 0, 43 * mib: 0, 45 * mib: 1} {
		r := report.Report{Rounds: []report.Round{
			{Round: 1, Subject: report.Kubelot, Figures: measure.Figures{"a": figure}},
		}}
		if got := Missed(r, Judge(r, []Goal{g})); len(got) != missed {
			t.Errorf("%v: %v", figure, got)
		}
	}
	if g.Held = 0; g.Bound() != "27.5 MiB" {
		t.Errorf("the bound is %s, want the limit and a tenth", g.Bound())
	}
}

func TestWhatIsNotMeasuredIsNeitherMetNorMissed(t *testing.T) {
	for _, g := range For(100) {
		none := report.Report{}
		v := Judge(none, []Goal{g})[0]
		if v.Word() != "not measured" || v.Met() || len(Missed(none, []Verdict{v})) > 0 {
			t.Errorf("%s: %s without any subject", v, v.Word())
		}
		// The subjects were there, and the figure is missing: the quick form must not pass for that.
		r := within(g)
		for i := range r.Rounds {
			r.Rounds[i].Figures = measure.Figures{"something.else": 1}
		}
		v = Judge(r, []Goal{g})[0]
		if v.Word() != "not measured" || (len(Missed(r, []Verdict{v})) == 1) != (g.Quick > 0) {
			t.Errorf("%s: %s, missed %v", v, v.Word(), Missed(r, []Verdict{v}))
		}
	}
	if (Verdict{Goal: Goal{Limit: 1}, Spread: report.Spread{Median: math.NaN(), Rounds: 1}}).Met() {
		t.Error("what isn't a number meets a goal")
	}
}

func TestGoalsOfTheTableAreAllThere(t *testing.T) {
	var out strings.Builder
	if err := Table(&out, Judge(within(For(100)[0]), For(100))); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| memory with 100 idle pods after churn, ten processes | at most 1.25 x kubelet | 1.25 x kubelet |",
		"| 1.25 x kubelet to 1.25 x kubelet | met |",
		"compact | at most 0.80 x kubelet | - | - | not measured |",
		"private memory and store | at most 25.0 MiB |", "before any pod | at most 4.0 MiB |",
		"idle CPU | at most 0.80 x kubelet |",
		"CPU to start and stop 100 pods | at most 0.90 x kubelet |", "100 deleted at once, median | at most 0.50 x kubelet |",
		"100 deleted at once, last | at most 0.85 x kubelet |", "100 created at once, last | at most 1.15 x hollow |",
		"one pod, create to Ready | at most baseline + 30.00 ms |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
