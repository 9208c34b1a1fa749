package measure

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestSample(t *testing.T) {
	s := Sample{5, 1, 4, 2, 3}
	if s.Median() != 3 || s.Max() != 5 || s.P95() != 5 {
		t.Errorf("median %d, max %d, p95 %d; want 3, 5, 5", s.Median(), s.Max(), s.P95())
	}
	if s[0] != 5 {
		t.Error("the sample was sorted in place")
	}
	if none := (Sample{}); none.Median() != 0 || none.Max() != 0 {
		t.Error("an empty sample has figures")
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	err := Table(&out, []Result{
		{Subject: "floor", Create: Sample{100 * time.Millisecond}, Starts: Batch{Parallel: 3, Times: Sample{time.Second, 2 * time.Second}}},
		{Subject: "kubelot", Create: Sample{130 * time.Millisecond}, Usage: &Usage{Idle: 12, PSS: 3 << 20}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0.130 s", "2: 2.000 s (2.000), 3 in parallel", "12 millicores", "3 MiB"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	// However busy the machine is: the loop ends when its time on the CPU shows.
	var cpu time.Duration
	for deadline := time.Now().Add(30 * time.Second); cpu < 20*time.Millisecond; {
		var err error // at first, that there is none yet
		if cpu, err = CPU(os.Getpid()); time.Now().After(deadline) {
			t.Fatalf("CPU = %v, %v; want what this loop burns", cpu, err)
		}
	}
	pss, err := PSS(os.Getpid())
	if err != nil || pss < 1<<20 {
		t.Errorf("PSS = %d, %v; want a megabyte at least", pss, err)
	}
	if _, err := CPU(-1); err == nil {
		t.Error("no error for a process that isn't there")
	}
}
