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
			Name: "bus", Private: 12e6 + random.Int64N(200_000), PSS: 14e6, Descriptors: 30, Heap: &heap,
			Goroutines: &goroutines,
		}
		r := crew.Reading{
			Store: crew.Files{Count: 20, Bytes: 4 << 20}, Run: crew.Files{Count: 60, Bytes: 5 << 20},
			Root: crew.Files{Count: 12},
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
				Files: crew.Files{Bytes: 600 * pods},
			}}
		}, nil},
		{"a history beyond its limit", func(r *crew.Reading, _ *crew.Process, _ int, pods int64) {
			r.Store.Bytes += 600 * pods
			r.Streams = []crew.Stream{{Name: "EVENT", History: true, MaxBytes: 4 << 20, Files: crew.Files{Bytes: 600 * pods}}}
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

// A run whose noise hides even twice the limit says so and isn't called good.
func TestNoiseThatHidesTheLimitIsSaid(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	samples := history(24, func(_ *crew.Reading, bus *crew.Process, _ int, _ int64) { bus.Private += random.Int64N(20e6) })
	growth, err := Judge(samples)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(growth, func(g Growth) bool { return g.Measure == private.name })
	if !growth[i].Blind() {
		t.Errorf("%+v isn't called blind", growth[i])
	}
	var out strings.Builder
	if err := Table(&out, growth); err != nil || !strings.Contains(out.String(), "too noisy") {
		t.Errorf("%v, table:\n%s", err, out.String())
	}
}

func TestBusVerdict(t *testing.T) {
	samples := history(24, func(r *crew.Reading, _ *crew.Process, i int, _ int64) {
		if i == 23 {
			r.Store.Bytes = 20 << 20
		}
	})
	if err := BusVerdict(samples, []int{2000, 11_000}); err != nil {
		t.Error(err)
	}
	if err := BusVerdict(samples, []int{2000, 12_000}); err == nil || !strings.Contains(err.Error(), "after 12000 pods") {
		t.Errorf("%v, want that the bus holds too much after 12000 pods", err)
	}
	var out strings.Builder
	if err := BusTable(&out, samples, []int{2000, 12_000}); err != nil || !strings.Contains(out.String(), "20.0 MiB") {
		t.Errorf("%v, table:\n%s", err, out.String())
	}
}

// counted pretends to have pods come and go.
type counted struct{ gone int }

func (c *counted) Run(_ context.Context, n int) error { c.gone += n; return nil }
func (c *counted) RunFor(_ context.Context, d time.Duration) error {
	c.gone += int(d / time.Second)
	return nil
}
func (c *counted) Gone() int                                  { return c.gone }
func (c *counted) read(context.Context) (crew.Reading, error) { return crew.Reading{}, nil }

func TestMarksAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := &counted{}
		var at []int
		var rests []time.Duration
		last := time.Now()
		plan := Plan{Marks: []int{70, 200}, Every: 30, Settle: time.Second, Rest: time.Minute, Told: func(s Sample) {
			at, rests, last = append(at, s.Pods), append(rests, time.Since(last)), time.Now()
		}}
		samples, err := Run(t.Context(), pods, pods.read, plan)
		if err != nil || !slices.Equal(at, []int{30, 60, 70, 100, 130, 160, 190, 200}) || len(samples) != len(at) {
			t.Errorf("samples at %v, %v; want each 30 and both marks", at, err)
		}
		if rests[1] != plan.Settle || rests[2] != plan.Rest || rests[7] != plan.Rest {
			t.Errorf("rests before the samples: %v; want a long one at the marks only", rests)
		}
		if found := At(samples, plan.Marks); len(found) != 2 || found[0].Pods != 70 || found[1].Pods != 200 {
			t.Errorf("samples at the marks: %+v", found)
		}
	})
}
