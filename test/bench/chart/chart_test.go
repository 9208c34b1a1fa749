package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubelot.dev/test/bench/agent"
	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/bench/report"
)

func held(names ...string) *agent.Held {
	h := &agent.Held{Store: 3 << 20}
	for i, name := range names {
		h.Processes = append(h.Processes, measure.Process{Name: name, PSS: int64(10+i) << 20})
	}
	return h
}

func of(create, idle float64) measure.Figures {
	return measure.Figures{"latency.create.p50": create, "burst.100.idle": idle}
}

func TestWrite(t *testing.T) {
	r := report.Report{Setup: report.Setup{Pods: 100, Churn: 2000}, Rounds: []report.Round{
		{Round: 1, Subject: report.Kubelet, Held: held("kubelet"), Figures: of(0.209, 48)},
		{Round: 1, Subject: report.Kubelot, Held: held("bus", "podsync"), Figures: of(0.166, 12)},
	}}
	dir := t.TempDir()
	if err := Write(dir, r); err != nil {
		t.Fatal(err)
	}
	for file, wanted := range map[string][]string{
		"memory.svg":  {"podsync", "store in /run", ">24<", ">13<"},
		"latency.svg": {"create to Ready", "0.209", "0.166"},
		"cpu.svg":     {"no probes", ">48<", ">12<"},
	} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wanted {
			if !strings.Contains(string(data), want) {
				t.Errorf("%s has no %q", file, want)
			}
		}
		if strings.Contains(string(data), report.Hollow) {
			t.Errorf("%s shows a subject that wasn't measured", file)
		}
	}
}

func TestNothingMeasuredIsNoChart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cpu.svg"), []byte("of an earlier run"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, report.Report{}); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("charts of nothing: %v", left)
	}
}
