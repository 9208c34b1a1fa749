package report

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/bench/agent"
	"kubelot.dev/test/bench/measure"
)

const (
	create = "latency.create.p50"
	start  = "burst.100.cpu.start"
)

func sample() Report {
	return Report{
		Schema: Schema, Begun: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Version: "v1",
		Machine: Machine{CPUs: 2, Memory: 1 << 30, Kernel: "6.1"},
		Setup:   Setup{Pods: 100, Churn: 2000, Parts: []string{"latency"}, Rounds: 2},
		Rounds: []Round{
			{Round: 1, Subject: Kubelet, Took: 1, Figures: measure.Figures{create: 0.25, start: 4}},
			{Round: 1, Subject: Kubelot, Took: 1, Figures: measure.Figures{create: 0.125, start: 2}},
			{Round: 2, Subject: Kubelot, Took: 1, Figures: measure.Figures{create: 0.75}},
			{Round: 2, Subject: Kubelet, Took: 1, Figures: measure.Figures{create: 0.5}, Held: &agent.Held{
				Processes: []measure.Process{{Name: "kubelet", PID: 7, PSS: 5, Private: 4, Descriptors: 3}}, Store: 2,
			}},
		},
	}
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.json")
	want := sample()
	if err := want.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if left, _ := filepath.Glob(path + "?*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for name, text := range map[string]string{"another schema": `{"schema": 2}`, "garbage": `{`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3, 1}},
		{[]float64{4, 1}, Spread{2.5, 1, 4, 2}},
		{[]float64{9, 1, 2}, Spread{2, 1, 9, 3}},
	} {
		if got := spread(c.values); got != c.want {
			t.Errorf("spread of %v = %+v, want %+v", c.values, got, c.want)
		}
	}
}

func TestCompareGoesRoundByRound(t *testing.T) {
	r := sample()
	// 0.125/0.25 and 0.75/0.5; the ratio of the medians would be 1.17.
	if got := r.Compare(Kubelot, Kubelet, Ratio, create); got.Rounds != 2 || got.Median != 1 {
		t.Errorf("ratio %+v, want a median of 1 over two rounds", got)
	}
	if got := r.Compare(Kubelot, Kubelet, Ratio, "burst.100.cpu.start"); got != (Spread{0.5, 0.5, 0.5, 1}) {
		t.Errorf("ratio %+v, want that of the only round that has both", got)
	}
	if got := r.Compare(Kubelot, Kubelet, Ratio, create, start); got.Rounds != 1 || got.Median != 0.5 {
		t.Errorf("ratio of sums %+v, want 0.5 of round 1", got)
	}
	if got := r.Compare(Kubelot, Baseline, Ratio, create); got.Rounds != 0 {
		t.Errorf("ratio %+v to what wasn't measured", got)
	}
	if got := r.Compare(Kubelet, Kubelot, Difference, create); got.Least != -0.25 || got.Most != 0.125 {
		t.Errorf("differences %+v, want -0.25 and 0.125", got)
	}
}

func TestJoin(t *testing.T) {
	a, b := sample(), sample()
	b.Setup.Parts, b.Setup.Churn = []string{"latency", "memory"}, 7
	b.Rounds = []Round{
		{Round: 1, Subject: Kubelot, Took: 2, Figures: measure.Figures{"memory.total": 5}, Held: &agent.Held{Store: 1}},
		{Round: 3, Subject: Baseline, Took: 2, Figures: measure.Figures{create: 9}},
	}
	joined := Join([]Report{a, b})
	if len(joined.Rounds) != 5 || len(joined.Setup.Parts) != 2 || joined.Setup.Churn != 7 {
		t.Fatalf("joined: %+v", joined)
	}
	got := joined.Rounds[1]
	if got.Took != 3 || got.Figures["memory.total"] != 5 || got.Figures[create] != 0.125 || got.Held == nil {
		t.Errorf("joined round: %+v", got)
	}
	if _, changed := a.Rounds[1].Figures["memory.total"]; changed {
		t.Error("the first report was changed")
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	r := sample()
	r.Rounds[1].Figures.Add(measure.Figures{
		"burst.30.create.last": 3, "burst.110.create.last": 9, "burst.100.idle": 12.3,
		"fresh.private.bus": 3 << 20, "hop.idle.p99": 0.0004, "unheard.of": 1,
	})
	if err := Table(&out, r); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if lines[0] != "|  | kubelet | kubelot |" {
		t.Errorf("head %q, want the subjects that were measured", lines[0])
	}
	place := -1
	for _, want := range []string{
		"| private memory of idle bus | - | 3.0 MiB |",
		"| one pod, create to Ready, p50 | 0.375 s (0.250 to 0.500) | 0.438 s (0.125 to 0.750), 1.00 x |",
		"| 30 pods at once, all Ready | - | 3.000 s |",
		"| 110 pods at once, all Ready | - | 9.000 s |",
		"| 100 pods idle, CPU | - | 12 millicores |",
		"| 100 pods, CPU to start them | 4.000 s | 2.000 s, 0.50 x |",
		"| bus hop, idle, p99 | - | 0.40 ms |",
		"| unheard.of | - | 1.000 s |",
	} {
		at := strings.Index(out.String(), want)
		if at <= place {
			t.Errorf("%q is missing or out of order in\n%s", want, out.String())
		}
		place = at
	}
}
