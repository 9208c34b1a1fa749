package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/words"
)

var daemonOrders = []order[live.Daemon]{
	{"a pod's way", func(live.Daemon, live.Daemon) int { return 0 }},
	{"cpu", func(a, b live.Daemon) int { return cmp.Compare(b.CPU, a.CPU) }},
	{"memory", func(a, b live.Daemon) int { return cmp.Compare(b.MemoryBytes, a.MemoryBytes) }},
	{"lag", func(a, b live.Daemon) int { return cmp.Compare(b.Lag, a.Lag) }},
	{"restarts", func(a, b live.Daemon) int { return cmp.Compare(b.Restarts, a.Restarts) }},
}

func daemonMood(d live.Daemon) mood {
	switch {
	case d.State == topic.Unhealthy || d.Problem != "" && d.State != topic.Degraded:
		return failing
	case d.Problem != "":
		return waiting
	}
	return calm
}

func daemonTable(daemons []live.Daemon) table {
	t := table{columns: []column{
		{title: "DAEMON"},
		{title: "HEALTH"},
		{title: "VERSION", shrinks: true},
		{title: "RST", right: true},
		{title: "CPU", right: true},
		{title: "MEMORY", right: true},
		{title: "LAG", right: true},
		{title: "MSG/S", right: true},
		{title: "DOES", grows: true},
	}}
	for _, d := range daemons {
		does := d.Doing
		if d.Problem != "" {
			does = d.Problem
		}
		t.rows = append(t.rows, row{key: d.Name, mood: daemonMood(d), cells: []string{
			words.OneLine(d.Name), words.OneLine(cmp.Or(string(d.State), "unknown")), words.OneLine(cmp.Or(d.Version, "-")),
			strconv.Itoa(d.Restarts), cores(d.CPU), memory(d), lagText(d.Lag), fmt.Sprintf("%.1f", d.Rate),
			words.OneLine(does),
		}})
	}
	return t
}

// cores is a use of CPU in percent of one core.
func cores(cpu float64) string {
	if cpu < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*cpu)
}

func memory(d live.Daemon) string {
	if d.MemoryBytes == 0 {
		return "-"
	}
	return bytesText(d.MemoryBytes)
}

func lagText(d time.Duration) string {
	if d < 0 {
		return "-"
	}
	return short(d)
}

// bytesText is a number of bytes with a unit of 1024.
func bytesText(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1000 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	if value < 10 {
		return fmt.Sprintf("%.1f%ci", value, units[unit])
	}
	return fmt.Sprintf("%.0f%ci", value, units[unit])
}

func daemonDetail(d live.Daemon, now time.Time, width int) []string {
	head := d.Name + ": " + cmp.Or(d.Problem, d.Doing, "nothing is known of it")
	lines := wrap(words.OneLine(head), width, 3)
	var facts []string
	if d.PID > 0 {
		facts = append(facts, fmt.Sprintf("process %d", d.PID))
	}
	if !d.Started.IsZero() {
		facts = append(facts, "runs for "+words.Age(now.Sub(d.Started)))
	}
	if !d.Beat.IsZero() {
		facts = append(facts, "last beat "+words.Age(now.Sub(d.Beat))+" ago")
	}
	if len(d.Shares) > 1 {
		facts = append(facts, "one process with "+strings.Join(without(d.Shares, d.Name), ", ")+": its CPU and memory")
	}
	return append(lines, wrap(strings.Join(facts, ", "), width, 2)...)
}

func without(names []string, name string) []string {
	var others []string
	for _, n := range names {
		if n != name {
			others = append(others, n)
		}
	}
	return others
}
