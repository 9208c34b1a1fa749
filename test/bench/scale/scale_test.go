package scale

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/test/bench/crew"
	"kubelot.dev/test/bench/fit"
	"kubelot.dev/test/bench/measure"
)

// points are two rounds of four sizes whose idle CPU time follows cpu, with the noise of a busy machine.
func points(cpu func(n float64) float64) []Point {
	random := rand.New(rand.NewPCG(1, 3))
	var all []Point
	for round := range 2 {
		for _, n := range []int{125, 250, 500, 1000} {
			noise := 1 + 0.02*random.NormFloat64()
			all = append(all, Point{Pods: n, Round: round, By: map[string]Used{
				"podsync": {IdleCPU: cpu(float64(n)) * noise, PSS: 20 * mib, MoreCPU: 2 * noise},
				"bus":     {IdleCPU: 0.01 * float64(n) * noise, PSS: 20*mib + 1000*float64(n)},
			}})
		}
	}
	return all
}

func TestQuadraticPartIsFound(t *testing.T) {
	laws, err := Judge(points(func(n float64) float64 { return 0.5 + 0.02*n + 4e-5*n*n }))
	if err != nil {
		t.Fatal(err)
	}
	failure := Verdict(laws)
	if failure == nil || !strings.Contains(failure.Error(), "CPU idle of podsync") ||
		strings.Contains(failure.Error(), "of bus") {
		t.Errorf("verdict %v, want podsync's CPU time alone", failure)
	}
	var out strings.Builder
	if err := errors.Join(Table(&out, laws), Points(&out, points(func(float64) float64 { return 1 }))); err != nil ||
		!strings.Contains(out.String(), "QUADRATIC") {
		t.Errorf("%v, table:\n%s", err, out.String())
	}
}

func TestLinearIsLinear(t *testing.T) {
	laws, err := Judge(points(func(n float64) float64 { return 0.5 + 0.02*n }))
	if err != nil {
		t.Fatal(err)
	}
	if err := Verdict(laws); err != nil {
		t.Error(err)
	}
	i := slices.IndexFunc(laws, func(l Law) bool { return l.Of == "podsync" && l.Figure == "CPU idle" })
	if l := laws[i]; l.Linear.Value < 0.015 || l.Linear.Value > 0.025 || l.At < 19 || l.At > 22 {
		t.Errorf("%+v, want 0.02 s for each of 1000 pods", l)
	}
}

// A hundred pods that come and go may not cost more where there are more others, but by a little.
func TestGrowthWithTheOthersIsFound(t *testing.T) {
	for growth, fails := range map[float64]bool{0: false, 0.1: false, 0.5: true} {
		all := points(func(n float64) float64 { return 0.02 * n })
		for i := range all {
			u := all[i].By["podsync"]
			more := 1 + growth*float64(all[i].Pods)/1000
			u.MoreCPU, u.MoreRead = u.MoreCPU*more, 5*mib*more
			// A burst isn't judged.
			u.StopCPU = float64(all[i].Pods * all[i].Pods)
			all[i].By["podsync"] = u
		}
		laws, err := Judge(all)
		if err != nil {
			t.Fatal(err)
		}
		failure := Verdict(laws)
		if fails != (failure != nil) {
			t.Errorf("growth by %.0f %%: %v", 100*growth, failure)
		}
		for _, want := range []string{"CPU of more pods of podsync", "read for more pods of podsync"} {
			if fails && failure != nil && !strings.Contains(failure.Error(), want) {
				t.Errorf("growth by %.0f %%: %v, want %s in it", 100*growth, failure, want)
			}
		}
	}
}

// The bytes of a burst don't depend on the clock, so they are judged.
func TestQuadraticBytesOfABurstAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		bytes func(n float64) float64
		fails bool
	}{
		"as many for each pod":                 {func(n float64) float64 { return 80_000 * n }, false},
		"more messages of each, up to a limit": {func(n float64) float64 { return 80_000 * n * n / (n + 50) }, false},
		"a list of all pods for each":          {func(n float64) float64 { return 80_000*n + 60*n*n }, true},
	} {
		all := points(func(n float64) float64 { return 0.02 * n })
		random := rand.New(rand.NewPCG(2, 4))
		for i := range all {
			u := all[i].By["bus"]
			u.StartWritten = c.bytes(float64(all[i].Pods)) * (1 + 0.02*random.NormFloat64())
			all[i].By["bus"] = u
		}
		laws, err := Judge(all)
		if err != nil {
			t.Fatal(err)
		}
		failure := Verdict(laws)
		if c.fails != (failure != nil) || c.fails && !strings.Contains(failure.Error(), "written to start of bus") {
			t.Errorf("%s: %v", name, failure)
		}
	}
}

// What grows more slowly than the number of pods is no failure.
func TestConcaveIsNoFailure(t *testing.T) {
	laws, err := Judge(points(func(n float64) float64 { return 1 + 0.04*n - 2e-5*n*n }))
	if err == nil {
		err = Verdict(laws)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestTooFewPoints(t *testing.T) {
	if _, err := Judge(points(func(float64) float64 { return 1 })[:3]); !errors.Is(err, fit.ErrFew) {
		t.Errorf("%v, want ErrFew", err)
	}
}

// node pretends to run pods: each takes a second of CPU time to start, in which the bus reads ten bytes, and half a
// second to stop.
type node struct {
	running int
	bus     crew.Process
}

func (n *node) Up(_ context.Context, pods int) error {
	n.running = pods
	n.bus.CPU += time.Duration(pods) * time.Second
	n.bus.Read += int64(10 * pods)
	return nil
}

func (n *node) Run(_ context.Context, pods int) error {
	n.bus.CPU += time.Duration(pods) * 3 * time.Second
	n.bus.Read += int64(30 * pods)
	n.bus.Written += int64(40 * pods)
	return nil
}

func (n *node) Down(context.Context) error {
	n.bus.CPU += time.Duration(n.running) * time.Second / 2
	n.running = 0
	return nil
}

func (n *node) read(context.Context) (crew.Reading, error) {
	n.bus.PSS = int64(n.running) << 10
	return crew.Reading{Time: time.Now(), Processes: []crew.Process{n.bus}}, nil
}

// Whenever a daemon is started again, the run ends at the next reading and says which it was.
func TestARestartEndsTheRun(t *testing.T) {
	const readings = 1 + 2*8 // one before the first pods, and two for each of a size's four stages
	for at := 1; at <= readings; at++ {
		synctest.Test(t, func(t *testing.T) {
			n, taken := &node{bus: crew.Process{Process: measure.Process{Name: "bus", PID: 7}}}, 0
			read := func(ctx context.Context) (crew.Reading, error) {
				if taken == at {
					n.bus.PID = 8
				}
				taken++
				return n.read(ctx)
			}
			points, err := Run(t.Context(), n, read, Plan{
				Warm: 5, Sizes: []int{10, 20}, Rounds: 1, Settle: time.Second, Idle: time.Minute, More: 4, Told: func(Point) {},
			})
			if at == readings {
				if err != nil || taken != readings || len(points) != 2 {
					t.Errorf("without a restart %d readings and %d points, %v", taken, len(points), err)
				}
				return
			}
			const want = "kubelot-bus was started again: its process was 7 and is 8"
			if taken != at+1 || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("restarted before reading %d: %d readings, %v", at, taken, err)
			}
		})
	}
}

// stuck are pods that don't start, since a daemon has crashed.
type stuck struct{ node }

func (s *stuck) Up(context.Context, int) error {
	s.bus.PID = 8
	return errors.New("they wait")
}

func TestWhatIsWrongWithPodsIsExplained(t *testing.T) {
	s := &stuck{node{bus: crew.Process{Process: measure.Process{Name: "bus", PID: 7}}}}
	_, err := Run(t.Context(), s, s.read, Plan{Sizes: []int{10}, Rounds: 1})
	if err == nil || !strings.Contains(err.Error(), "they wait\nkubelot-bus was started again") {
		t.Errorf("%v, want the pods' error and the restart", err)
	}
}

func TestRunMeasuresStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{bus: crew.Process{Process: measure.Process{Name: "bus", PID: 7}}}
		var order []int
		plan := Plan{
			Sizes: []int{20, 10}, Rounds: 2, Settle: time.Second, Idle: time.Minute, More: 4,
			Told: func(p Point) { order = append(order, p.Pods) },
		}
		points, err := Run(t.Context(), n, n.read, plan)
		if err != nil || !slices.Equal(order, []int{10, 20, 20, 10}) {
			t.Fatalf("sizes %v, %v; want them up and then down", order, err)
		}
		if u := points[1].By["bus"]; u.StartCPU != 20 || u.StopCPU != 10 || u.MoreCPU != 12 || u.IdleCPU != 0 ||
			u.StartRead != 200 || u.MoreRead != 120 || u.MoreWritten != 160 || u.PSS != 20<<10 {
			t.Errorf("20 pods: %+v", u)
		}
	})
}
