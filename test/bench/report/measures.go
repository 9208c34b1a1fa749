package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Unit is what a figure counts.
type Unit string

// The units.
const (
	Seconds    Unit = "s"
	Millis     Unit = "ms" // of a figure in seconds
	MiB        Unit = "MiB"
	Millicores Unit = "millicores"
	PerSecond  Unit = "/s"
	Factor     Unit = "x"
)

// Format writes a figure in its unit.
func (u Unit) Format(value float64) string {
	switch u {
	case Millis:
		return fmt.Sprintf("%.2f ms", 1000*value)
	case MiB:
		return fmt.Sprintf("%.1f MiB", value/(1<<20))
	case Millicores:
		return fmt.Sprintf("%.0f millicores", value)
	case PerSecond:
		return fmt.Sprintf("%.1f /s", value)
	case Factor:
		return fmt.Sprintf("%.2f x", value)
	case Seconds:
	}
	return fmt.Sprintf("%.3f s", value)
}

// Measure is a row of the table.
type Measure struct {
	Key   string
	Title string
	Unit  Unit
}

// Measures are the rows for the report's figures, in the order of the benchmark's parts.
func (r Report) Measures() []Measure {
	var all []Measure
	for _, round := range r.Rounds {
		for key := range round.Figures {
			m, _ := measureOf(key)
			if !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b Measure) int {
		_, i := measureOf(a.Key)
		_, j := measureOf(b.Key)
		if i != j {
			return i - j
		}
		// burst.30 comes before burst.110.
		if len(a.Key) != len(b.Key) && strings.HasPrefix(a.Key, "burst.") {
			return len(a.Key) - len(b.Key)
		}
		return strings.Compare(a.Key, b.Key)
	})
	return all
}

// known are the measures by their keys; a * stands for the part of a key that the title shows as %s.
var known = []Measure{
	{"fresh.memory", "memory before any pod", MiB},
	{"fresh.private.median", "private memory of idle daemons, median", MiB},
	{"fresh.private.largest", "private memory of the largest idle daemon", MiB},
	{"fresh.private.*", "private memory of idle %s", MiB},
	{"latency.create.p50", "one pod, create to Ready, p50", Seconds},
	{"latency.create.p95", "one pod, create to Ready, p95", Seconds},
	{"latency.delete.p50", "one pod, delete to gone, p50", Seconds},
	{"latency.delete.p95", "one pod, delete to gone, p95", Seconds},
	{"call.*", "CRI call %s, p50", Millis},
	{"burst.*.create.last", "%s pods at once, all Ready", Seconds},
	{"burst.*.create.p50", "%s pods at once, Ready, p50", Seconds},
	{"burst.*.delete.last", "%s pods deleted at once, all gone", Seconds},
	{"burst.*.delete.p50", "%s pods deleted at once, gone, p50", Seconds},
	{"burst.*.idle", "%s pods idle, CPU", Millicores},
	{"burst.*.cpu.start", "%s pods, CPU to start them", Seconds},
	{"burst.*.cpu.stop", "%s pods, CPU to stop them", Seconds},
	{"burst.*.pss", "%s pods idle, PSS", MiB},
	{"probes.*.create.last", "with %s probes at 1 s: all Ready", Seconds},
	{"probes.*.create.p50", "with %s probes at 1 s: Ready, p50", Seconds},
	{"probes.*.delete.last", "with %s probes at 1 s: all gone", Seconds},
	{"probes.*.delete.p50", "with %s probes at 1 s: gone, p50", Seconds},
	{"probes.*.idle", "with %s probes at 1 s: idle CPU", Millicores},
	{"probes.*.rate", "with %s probes at 1 s: runs a second", PerSecond},
	{"probes.*.cpu.start", "with %s probes at 1 s: CPU to start", Seconds},
	{"probes.*.cpu.stop", "with %s probes at 1 s: CPU to stop", Seconds},
	{"probes.*.pss", "with %s probes at 1 s: PSS", MiB},
	{"exit.p50", "container exit to status, p50", Millis},
	{"exit.p95", "container exit to status, p95", Millis},
	{"config.p50", "ConfigMap change to file, p50", Seconds},
	{"config.max", "ConfigMap change to file, longest", Seconds},
	{"restart.p50", "restart until it acts again, p50", Seconds},
	{"restart.max", "restart until it acts again, longest", Seconds},
	{"volumes.mount.p50", "one pod with a CSI volume, create to Ready, p50", Seconds},
	{"volumes.mount.max", "one pod with a CSI volume, create to Ready, longest", Seconds},
	{"volumes.attach.p50", "one pod with a CSI volume that is attached, create to Ready, p50", Seconds},
	{"volumes.attach.max", "one pod with a CSI volume that is attached, create to Ready, longest", Seconds},
	{"devices.with", "110 pods at once with a device each, all Ready", Seconds},
	{"devices.without", "110 pods at once without, all Ready", Seconds},
	{"devices.ratio", "110 pods at once, with devices by without", Factor},
	{"memory.total", "memory after churn, all", MiB},
	{"memory.soon", "memory after churn, all, right after the last starts", MiB},
	{"memory.pss", "memory after churn, PSS of the processes", MiB},
	{"memory.store", "memory after churn, run directory", MiB},
	{"memory.bus", "memory after churn, bus: private memory and store", MiB},
	{"memory.units", "memory after churn, without the supervisor", MiB},
	{"hop.idle.p50", "bus hop, idle, p50", Millis},
	{"hop.idle.p99", "bus hop, idle, p99", Millis},
	{"hop.idle.max", "bus hop, idle, longest", Millis},
	{"hop.churn.p50", "bus hop while pods churn, p50", Millis},
	{"hop.churn.p99", "bus hop while pods churn, p99", Millis},
	{"hop.churn.max", "bus hop while pods churn, longest", Millis},
	{"hop.after.p50", "bus hop in the second minute after that, p50", Millis},
	{"hop.after.p99", "bus hop in the second minute after that, p99", Millis},
	{"hop.after.max", "bus hop in the second minute after that, longest", Millis},
	{"hop.state.idle.p50", "bus hop of a state, idle, p50", Millis},
	{"hop.state.idle.p99", "bus hop of a state, idle, p99", Millis},
	{"hop.state.idle.max", "bus hop of a state, idle, longest", Millis},
	{"hop.state.churn.p50", "bus hop of a state while pods churn, p50", Millis},
	{"hop.state.churn.p99", "bus hop of a state while pods churn, p99", Millis},
	{"hop.state.churn.max", "bus hop of a state while pods churn, longest", Millis},
	{"hop.state.after.p50", "bus hop of a state in the minute after that, p50", Millis},
	{"hop.state.after.p99", "bus hop of a state in the minute after that, p99", Millis},
	{"hop.state.after.max", "bus hop of a state in the minute after that, longest", Millis},
}

// measureOf finds the key's measure and its place; one that nobody has described is shown by its key, at the end.
func measureOf(key string) (Measure, int) {
	for place, m := range known {
		before, after, pattern := strings.Cut(m.Key, "*")
		switch {
		case m.Key == key:
			return m, place
		case pattern && len(key) > len(before)+len(after) && strings.HasPrefix(key, before) && strings.HasSuffix(key, after):
			middle := key[len(before) : len(key)-len(after)]
			return Measure{Key: key, Title: fmt.Sprintf(m.Title, middle), Unit: m.Unit}, place
		}
	}
	return Measure{Key: key, Title: key, Unit: Seconds}, math.MaxInt
}
