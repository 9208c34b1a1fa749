package chart

import (
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"kubelot.dev/test/bench/agent"
	"kubelot.dev/test/bench/report"
)

const mib = 1.0 / (1 << 20)

// latency shows what a user waits for.
func latency(r report.Report) ([]panel, error) {
	n := r.Setup.Pods
	burst := func(what string) []string { return []string{fmt.Sprintf("burst.%d.%s", n, what)} }
	return panels(
		func() (panel, error) {
			return grouped(r, "One pod, median (s)", "%.3f", []category{
				{"create to Ready", []string{"latency.create.p50"}, 1},
				{"delete to gone", []string{"latency.delete.p50"}, 1},
			})
		},
		func() (panel, error) {
			return grouped(r, fmt.Sprintf("%d pods at once (s)", n), "%.1f", []category{
				{"Ready, median", burst("create.p50"), 1},
				{"all Ready", burst("create.last"), 1},
				{"gone, median", burst("delete.p50"), 1},
				{"all gone", burst("delete.last"), 1},
			})
		},
	)
}

// cpu shows what the agents' processes compute.
func cpu(r report.Report) ([]panel, error) {
	n := r.Setup.Pods
	burst := fmt.Sprintf("burst.%d.", n)
	return panels(
		func() (panel, error) {
			return grouped(r, fmt.Sprintf("CPU with %d idle pods (millicores)", n), "%.0f", []category{
				{"no probes", []string{burst + "idle"}, 1},
				{"http, 1 s", []string{"probes.http.idle"}, 1},
				{"grpc, 1 s", []string{"probes.grpc.idle"}, 1},
				{"exec, 1 s", []string{"probes.exec.idle"}, 1},
			})
		},
		func() (panel, error) {
			return grouped(r, fmt.Sprintf("CPU time for %d pods (s)", n), "%.1f", []category{
				{"to start", []string{burst + "cpu.start"}, 1},
				{"to stop", []string{burst + "cpu.stop"}, 1},
			})
		},
	)
}

// panels are those for which something was measured.
func panels(all ...func() (panel, error)) ([]panel, error) {
	var there []panel
	for _, draw := range all {
		p, err := draw()
		if err != nil {
			return nil, err
		}
		if p.Plot != nil {
			there = append(there, p)
		}
	}
	return there, nil
}

// storeName is the part of the memory that is no process's.
const storeName = "store in /run"

// memory stacks what each process of an agent holds, after churn.
func memory(r report.Report) ([]panel, error) {
	var subjects []string
	held := map[string]agent.Held{}
	for _, s := range slices.Backward(report.Subjects) {
		if h, ok := r.Held(s); ok {
			subjects = append(subjects, s)
			held[s] = h
		}
	}
	if len(subjects) == 0 {
		return nil, nil
	}
	title := fmt.Sprintf("Memory with %d idle pods after %d have come and gone (MiB): PSS of each process, and the run "+
		"directory", r.Setup.Pods, r.Setup.Churn)
	p := newPanel(title, float64(3*len(subjects)))
	p.NominalY(subjects...)
	var below *plotter.BarChart
	for i, name := range parts(held) {
		values := make(plotter.Values, len(subjects))
		for j, s := range subjects {
			values[j] = part(held[s], name) * mib
		}
		bars, err := plotter.NewBarChart(values, 2*row)
		if err != nil {
			return nil, err
		}
		bars.Horizontal, bars.Color = true, shade(name, i)
		bars.LineStyle.Width = 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		p.Legend.Add(name, bars)
	}
	totals := plotter.XYLabels{}
	for j, s := range subjects {
		total := float64(held[s].Total()) * mib
		totals.XYs = append(totals.XYs, plotter.XY{X: total, Y: float64(j)})
		totals.Labels = append(totals.Labels, fmt.Sprintf("%.0f", total))
		p.X.Max = max(p.X.Max, total)
	}
	if err := p.values(totals, 0); err != nil {
		return nil, err
	}
	p.X.Max *= 1.3 // room for the legend
	p.height = max(p.height, frame+vg.Length(len(parts(held)))*row)
	p.Legend.Top = true
	return []panel{p}, nil
}

// shade is the colour of a part: an agent of one process has its own, and the store is grey.
func shade(name string, place int) color.Color {
	switch {
	case name == report.Kubelet:
		return colours[report.Kubelet]
	case strings.HasSuffix(name, " daemons"):
		return colours[report.Compact]
	case name == storeName:
		return colours[report.Baseline]
	default:
		return shades[place%len(shades)]
	}
}

// parts are the names of all processes, the largest first, and the store.
func parts(held map[string]agent.Held) []string {
	largest := map[string]float64{}
	for _, h := range held {
		for _, p := range h.Processes {
			largest[p.Name] = max(largest[p.Name], part(h, p.Name))
		}
		if h.Store > 0 {
			largest[storeName] = -1 // at the end
		}
	}
	var names []string
	for name := range largest {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(largest[b] - largest[a]) })
	return names
}

// part is what the processes of the name hold in bytes.
func part(h agent.Held, name string) (sum float64) {
	if name == storeName {
		return float64(h.Store)
	}
	for _, p := range h.Processes {
		if p.Name == name {
			sum += float64(p.PSS)
		}
	}
	return sum
}
