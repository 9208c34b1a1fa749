package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"kubelot.dev/test/bench/chart"
	"kubelot.dev/test/bench/goals"
	"kubelot.dev/test/bench/report"
)

const (
	head = `# Benchmark

Written by make bench; don't edit.
kubelot %s, %s, %d CPUs, %.0f GiB, Linux %s.
Rounds: %s,
in alternating order on %s. %d pods at once, probes on %d pods,
memory after %d pods have come and gone. "baseline" is the bare CRI calls. "hollow" adds the requests to the API
server that every agent needs. Memory is the PSS of all processes and everything in the run directory, a tmpfs. It
includes the supervisor "up", whose work systemd does on a node. Private memory is what a process alone has written
to.%s

`
	measures = `
## Measures

The median of the rounds (smallest to largest), and the median of the rounds' ratios to the kubelet.

`
)

// writePage writes the page that shows the result in docs/bench.
func writePage(w io.Writer, r report.Report) error {
	_, err := fmt.Fprintf(w, head, r.Version, r.Begun.UTC().Format("2006-01-02"), r.Machine.CPUs,
		float64(r.Machine.Memory)/(1<<30), r.Machine.Kernel, rounds(r), beds(r), r.Setup.Pods, r.Setup.Probed,
		r.Setup.Churn, rest(r))
	if err != nil {
		return err
	}
	if out, ok := w.(*os.File); ok {
		for _, name := range chart.Files {
			if _, err := os.Stat(filepath.Join(filepath.Dir(out.Name()), name)); err == nil {
				fmt.Fprintf(w, "![%s](%s)\n\n", strings.TrimSuffix(name, ".svg"), name)
			}
		}
	}
	if _, err := fmt.Fprint(w, "## Goals\n\n"); err != nil {
		return err
	}
	if err := goals.Table(w, goals.Judge(r, goals.For(r.Setup.Pods))); err != nil {
		return err
	}
	if _, err := fmt.Fprint(w, measures); err != nil {
		return err
	}
	return report.Table(w, r)
}

// rounds is how often the parts were measured: those that were measured most often are not named.
func rounds(r report.Report) string {
	counts := r.RoundsOf()
	most := 0
	for _, n := range counts {
		most = max(most, n)
	}
	var fewer []string
	for _, part := range r.Setup.Parts {
		if n := counts[part]; n > 0 && n < most {
			fewer = append(fewer, fmt.Sprintf("%s %d", part, n))
		}
	}
	if len(fewer) == 0 {
		return fmt.Sprint(most)
	}
	return fmt.Sprintf("%d (%s)", most, strings.Join(fewer, ", "))
}

// beds is where they were measured.
func beds(r report.Report) string {
	if r.Setup.Runs > 1 {
		return fmt.Sprintf("one containerd and control plane for each of %d runs", r.Setup.Runs)
	}
	return "one containerd and control plane"
}

// rest is the sentence on how memory is read; empty where the report doesn't say.
func rest(r report.Report) string {
	if r.Setup.Rest == 0 {
		return ""
	}
	return fmt.Sprintf("\nAfter churn an agent rests for %.0f s before its memory is read.", r.Setup.Rest)
}
