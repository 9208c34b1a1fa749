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
Rounds: %d, in alternating order on one containerd and control plane. %d pods at once, probes on %d pods, memory after
%d pods have come and gone. "baseline" is the bare CRI calls. "hollow" adds the requests to the API server that every
agent needs. Memory is the PSS of all processes and everything in the run directory, a tmpfs. It includes the supervisor
"up", whose work systemd does on a node. After churn an agent rests for two minutes before its memory is read.

`
	measures = `
## Measures

The median of the rounds (smallest to largest), and the median of the rounds' ratios to the kubelet.

`
)

// writePage writes the page that shows the result in docs/bench.
func writePage(w io.Writer, r report.Report) error {
	_, err := fmt.Fprintf(w, head, r.Version, r.Begun.UTC().Format("2006-01-02"), r.Machine.CPUs,
		float64(r.Machine.Memory)/(1<<30), r.Machine.Kernel, r.Setup.Rounds, r.Setup.Pods, r.Setup.Probed, r.Setup.Churn)
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
