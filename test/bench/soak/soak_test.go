package soak

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

// history makes n samples, 500 pods apart, whose readings set changes: the noise of a process's private memory is
// that of a garbage collector.
func history(n int, set func(r *crew.Reading, bus *crew.Process, i int, pods int64)) []Sample {
	random := rand.New(rand.NewPCG(5, 6))
	var samples []Sample
	for i := range n {
		pods := 500 * (i + 1)
		heap, goroutines := int64(5e6), 60
		bus := crew.Process{
			Process: measure.Process{
				Name: "bus", PID: 7, Private: 12e6 + random.Int64N(200_000), PSS: 14e6, Descriptors: 30,
			},
			Heap: &heap, Goroutines: &goroutines,
		}
		r := crew.Reading{
			Store: measure.Files{Count: 20, Bytes: 4 << 20}, Run: measure.Files{Count: 60, Bytes: 5 << 20},
			Root: measure.Files{Count: 12},
		}
		set(&r, &bus, i, int64(pods))
		r.Processes = []crew.Process{bus}
		samples = append(samples, Sample{Pods: pods, Reading: r})
	}
	return samples
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(r *crew.Reading, bus *crew.Process, i int, pods int64)
		want []string // of the verdict; none is no error
	}{
		{"nothing grows", func(*crew.Reading, *crew.Process, int, int64) {}, nil},
		{
			"private memory", func(_ *crew.Reading, bus *crew.Process, _ int, pods int64) { bus.Private += 300 * pods },
			[]string{"private memory of kubelot-bus"},
		},
		{"a little, within the limit", func(_ *crew.Reading, bus *crew.Process, _ int,
			pods int64,
		) {
			*bus.Heap += 8 * pods
		}, nil},
		{
			"a UID for each pod", func(_ *crew.Reading, bus *crew.Process, _ int, pods int64) { *bus.Heap += 52 * pods },
			[]string{"heap after collection of kubelot-bus"},
		},
		{"the heap's saw-tooth", func(_ *crew.Reading, bus *crew.Process, i int,
			_ int64,
		) {
			*bus.Heap += 400_000 * int64(i%5)
		}, nil},
		{"growth that has ended by half", func(_ *crew.Reading, bus *crew.Process, _ int,
			pods int64,
		) {
			*bus.Heap += 1000 * min(pods, 5000)
		}, nil},
		{"memory that shrinks", func(_ *crew.Reading, bus *crew.Process, _ int,
			pods int64,
		) {
			bus.Private += 300 * (12_000 - pods)
		}, nil},
		{"goroutines and descriptors", func(_ *crew.Reading, bus *crew.Process, _ int, pods int64) {
			*bus.Goroutines += int(pods / 100)
			bus.Descriptors += int(pods / 100)
		}, []string{"goroutines of kubelot-bus", "descriptors of kubelot-bus"}},
		{"directories", func(r *crew.Reading, _ *crew.Process, _ int,
			pods int64,
		) {
			r.Root.Count += pods
			r.Run.Count += pods
		}, []string{
			"files of run directory", "files of root directory",
		}},
		{
			"the store", func(r *crew.Reading, _ *crew.Process, _ int, pods int64) { r.Store.Bytes += 600 * pods },
			[]string{"bytes in files of bus's store"},
		},
		{"tombstones", func(r *crew.Reading, _ *crew.Process, _ int, pods int64) {
			r.Streams = []crew.Stream{{Name: "STATE", Messages: pods, Subjects: pods, MaxBytes: 8 << 20}}
		}, []string{"messages kept of stream STATE", "subjects of stream STATE"}},
		{"a history that fills", func(r *crew.Reading, _ *crew.Process, _ int, pods int64) {
			r.Store.Bytes += 600 * pods
			r.Streams = []crew.Stream{{
				Name: "EVENT", Messages: pods, History: true, MaxBytes: 64 << 20,
				Files: measure.Files{Bytes: 600 * pods},
			}}
		}, nil},
		{"a history beyond its limit", func(r *crew.Reading, _ *crew.Process, _ int, pods int64) {
			r.Store.Bytes += 600 * pods
			r.Streams = []crew.Stream{{Name: "EVENT", History: true, MaxBytes: 4 << 20, Files: measure.Files{Bytes: 600 * pods}}}
		}, []string{"stream EVENT has 7200000 bytes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			samples := history(24, c.set)
			growth, err := Judge(samples)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			if err := Verdict(samples, growth); err != nil {
				text = err.Error()
			}
			if lines := strings.Count(text, "\n") + 1; text != "" && lines != len(c.want) || text == "" && len(c.want) > 0 {
				t.Errorf("verdict %q, want %q", text, c.want)
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("verdict %q, want %q in it", text, want)
				}
			}
		})
	}
}

func TestTooFewSamples(t *testing.T) {
	still := func(*crew.Reading, *crew.Process, int, int64) {}
	for _, n := range []int{0, 1, 2*leastSamples - 2} {
		if _, err := Judge(history(n, still)); !errors.Is(err, fit.ErrFew) {
			t.Errorf("%d samples: %v, want ErrFew", n, err)
		}
	}
	if _, err := Judge(history(2*leastSamples, still)); err != nil {
		t.Error(err)
	}
}

// A run whose noise hides a leak fails, unless it would show elsewhere.
func TestNoiseThatHidesALeakFails(t *testing.T) {
	for name, c := range map[string]struct {
		of, measure string
		set         func(noise int64, p *crew.Process)
		shows       string
	}{
		"private memory of the bus": {"bus", private.name, func(n int64, p *crew.Process) { p.Private += n }, "at rest"},
		"private memory, with a heap": {
			"gc", private.name, func(n int64, p *crew.Process) { p.Private += n }, "in the heap",
		},
		"private memory, with a noisy heap": {"gc", private.name, func(n int64, p *crew.Process) {
			p.Private, *p.Heap = p.Private+n, *p.Heap+n
		}, ""},
		"private memory without a heap": {"gc", private.name, func(n int64, p *crew.Process) {
			p.Private, p.Heap = p.Private+n, nil
		}, ""},
		"a noisy heap": {"gc", heap.name, func(n int64, p *crew.Process) { *p.Heap += n }, ""},
		"descriptors":  {"gc", handles.name, func(n int64, p *crew.Process) { p.Descriptors += int(n / 10_000) }, ""},
	} {
		random := rand.New(rand.NewPCG(7, 8))
		samples := history(24, func(_ *crew.Reading, p *crew.Process, _ int, _ int64) {
			p.Name = c.of
			c.set(random.Int64N(20e6), p)
		})
		growth, err := Judge(samples)
		if err != nil {
			t.Fatal(err)
		}
		of := "kubelot-" + c.of
		i := slices.IndexFunc(growth, func(g Growth) bool { return g.Of == of && g.Measure == c.measure })
		if g := growth[i]; g.Shows != c.shows || g.Blind() != (c.shows == "") {
			t.Errorf("%s: %+v, blind %v; want that a leak shows %q", name, g, g.Blind(), c.shows)
		}
		want := c.measure + " of " + of + " would not have shown"
		err = Verdict(samples, growth)
		if c.shows == "" && (err == nil || !strings.Contains(err.Error(), want)) || c.shows != "" && err != nil {
			t.Errorf("%s: verdict %v", name, err)
		}
		var out strings.Builder
		if err := Table(&out, growth); err != nil || !strings.Contains(out.String(), growth[i].verdict()) {
			t.Errorf("%s: %v, table:\n%s", name, err, out.String())
		}
	}
}

// rested has the crew rest before the samples after so many pods.
func rested(samples []Sample, pods ...int) []Sample {
	for i := range samples {
		samples[i].Rested = slices.Contains(pods, samples[i].Pods)
	}
	return samples
}

func TestTheBusHasAGoal(t *testing.T) {
	samples := history(24, func(r *crew.Reading, _ *crew.Process, i int, _ int64) {
		if i == 23 {
			r.Store.Bytes = 20 << 20
			r.Streams = []crew.Stream{{Name: "EVENT", History: true, MaxBytes: 16 << 20, Files: measure.Files{Bytes: 16 << 20}}}
		}
	})
	if err := BusVerdict(rested(samples, 2000, 11_000), BusGoal); err != nil {
		t.Error(err)
	}
	rested(samples, 2000, 12_000)
	if err := BusVerdict(samples, BusGoal); err == nil || !strings.Contains(err.Error(), "after 12000 pods") {
		t.Errorf("%v, want that the bus holds too much after 12000 pods", err)
	}
	if err := BusVerdict(samples, 0); err != nil {
		t.Errorf("%v without a goal: the histories may fill", err)
	}
	var out strings.Builder
	if err := BusTable(&out, samples); err != nil || !strings.Contains(out.String(), "20.0 MiB") {
		t.Errorf("%v, table:\n%s", err, out.String())
	}
}

// Within its goal the bus may not grow from one rest to the other either.
func TestTheBusMayNotGrowBetweenRests(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(r *crew.Reading, bus *crew.Process)
		want string // no error if empty
	}{
		"less":          {func(_ *crew.Reading, bus *crew.Process) { bus.Private -= 4 << 20 }, ""},
		"chance":        {func(_ *crew.Reading, bus *crew.Process) { bus.Private += 1 << 20 }, ""},
		"memory":        {func(_ *crew.Reading, bus *crew.Process) { bus.Private += 3 << 20 }, "kubelot-bus grows"},
		"its store":     {func(r *crew.Reading, _ *crew.Process) { r.Store.Bytes += 3 << 20 }, "kubelot-bus grows"},
		"some messages": {func(r *crew.Reading, _ *crew.Process) { r.Streams[0].Messages += 10 }, ""},
		"messages":      {func(r *crew.Reading, _ *crew.Process) { r.Streams[0].Messages += 50 }, "stream STATE of the bus"},
	} {
		samples := rested(history(24, func(r *crew.Reading, bus *crew.Process, i int, _ int64) {
			bus.Private = 12 << 20
			r.Streams = []crew.Stream{{Name: "STATE", Messages: 7}}
			if i == 23 {
				c.set(r, bus)
			}
		}), 2000, 12_000)
		err := BusVerdict(samples, BusGoal)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestFewPodsBetweenRestsSayNothing(t *testing.T) {
	still := func(*crew.Reading, *crew.Process, int, int64) {}
	samples := rested(history(24, still), 6000, 7500)
	if err := BusVerdict(samples, 0); err == nil || !strings.Contains(err.Error(), "1500 pods") ||
		!strings.Contains(err.Error(), "1.4 times as long") {
		t.Errorf("%v, want that these are too few", err)
	}
	if err := BusVerdict(rested(samples, 6000), 0); err == nil {
		t.Error("one rest is enough")
	}
}

// A daemon that ends after so many pods and begins again never holds much.
func TestARestartFails(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(r *crew.Reading, bus *crew.Process, i int, pods int64)
		want string // in the verdict; none is no error
	}{
		"another process": {func(_ *crew.Reading, bus *crew.Process, i int, _ int64) {
			bus.PID += i / 20
		}, "between 10000 and 10500 pods: kubelot-bus was started again: its process was 7 and is 8"},
		"in the first half": {func(_ *crew.Reading, bus *crew.Process, i int, _ int64) {
			bus.PID += min(i, 1)
		}, "between 500 and 1000 pods: kubelot-bus was started again"},
		"none at a sample": {func(_ *crew.Reading, bus *crew.Process, i int, _ int64) {
			if i == 5 {
				bus.Name = "other"
			}
		}, "between 2500 and 3000 pods: kubelot-bus isn't there any more"},
		"a process that comes late": {func(_ *crew.Reading, bus *crew.Process, i int, _ int64) {
			if i < 5 {
				bus.Name = ""
			}
		}, ""},
	} {
		samples := history(24, c.set)
		for i := range samples {
			samples[i].Processes = slices.DeleteFunc(samples[i].Processes, func(p crew.Process) bool { return p.Name == "" })
		}
		err := Verdict(samples, nil)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// counted pretends to have pods come and go.
type counted struct{ gone int }

func (c *counted) Run(_ context.Context, n int) error { c.gone += n; return nil }
func (c *counted) RunFor(_ context.Context, d time.Duration) error {
	time.Sleep(d)
	c.gone += int(d / time.Second)
	return nil
}
func (c *counted) Gone() int                                  { return c.gone }
func (c *counted) read(context.Context) (crew.Reading, error) { return crew.Reading{}, nil }

func TestMarksAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := &counted{}
		var at []int
		var pauses []time.Duration
		last := time.Now()
		plan := Plan{Marks: []int{70, 200}, Every: 30, Settle: time.Second, Rest: time.Minute, Told: func(s Sample) {
			at, pauses, last = append(at, s.Pods), append(pauses, time.Since(last)), time.Now()
		}}
		samples, err := Run(t.Context(), pods, pods.read, plan)
		if err != nil || !slices.Equal(at, []int{30, 60, 70, 100, 130, 160, 190, 200}) || len(samples) != len(at) {
			t.Errorf("samples at %v, %v; want each 30 and both marks", at, err)
		}
		if pauses[1] != plan.Settle || pauses[2] != plan.Rest || pauses[7] != plan.Rest {
			t.Errorf("rests before the samples: %v; want a long one at the marks only", pauses)
		}
		if found := rests(samples); len(found) != 2 || found[0].Pods != 70 || found[1].Pods != 200 {
			t.Errorf("samples at the marks: %+v", found)
		}
	})
}

// A run by the clock has a long rest at half of its time and one at its end.
func TestTheClockHasTwoRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, begin := &counted{}, time.Now()
		var at []time.Duration
		plan := Plan{
			For: 10 * time.Minute, Pause: 14 * time.Second, Settle: 11 * time.Second, Rest: 90 * time.Second,
			Told: func(s Sample) {
				if s.Rested {
					at = append(at, time.Since(begin).Round(time.Minute/2))
				}
			},
		}
		samples, err := Run(t.Context(), pods, pods.read, plan)
		if err != nil || len(at) != 2 || !samples[len(samples)-1].Rested || len(samples) < 2*leastSamples {
			t.Fatalf("%d samples, rests at %v, %v", len(samples), at, err)
		}
		if half, end := at[0], at[1]; half != 6*time.Minute+30*time.Second || end < 10*time.Minute || end > 12*time.Minute {
			t.Errorf("rests end at %v; want them at half and at the end", at)
		}
	})
}
