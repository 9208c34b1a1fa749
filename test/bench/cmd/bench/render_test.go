package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/bench/report"
)

func TestRenderJoinsParts(t *testing.T) {
	dir := t.TempDir()
	for name, figures := range map[string]measure.Figures{
		"a.json": {"latency.create.p50": 0.15}, "b.json": {"memory.bus": 30 << 20},
	} {
		r := report.Report{Schema: report.Schema, Version: "v7", Setup: report.Setup{Pods: 100, Churn: 2000, Rounds: 2}}
		r.Rounds = []report.Round{{Round: 1, Subject: report.Kubelot, Figures: figures}}
		r.Setup.Parts, r.Setup.Rest = []string{"memory"}, 165
		if name == "a.json" {
			r.Setup.Parts, r.Setup.Rest = []string{"latency"}, 165
			r.Rounds = append(r.Rounds, report.Round{Round: 2, Subject: report.Kubelot, Figures: figures})
		}
		if err := r.Save(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out")
	cmd := newCommand()
	cmd.SetArgs([]string{"render", filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json"), "--out", out})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, pageFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Rounds: 2 (memory 1),\nin alternating order on one containerd and control plane for each of 2 runs.",
		"rests for 165 s", "kubelot v7", "0.150 s", "at most 25.0 MiB | 30.0 MiB", "| missed |", "(latency.svg)",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q on the page:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "memory.svg") {
		t.Error("the page shows a chart that there isn't")
	}
	joined, err := report.Load(filepath.Join(out, dataFile))
	if err != nil || len(joined.Rounds) != 2 || len(joined.Rounds[0].Figures) != 2 {
		t.Errorf("joined %+v, %v", joined, err)
	}
}
