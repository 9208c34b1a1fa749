package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/words"
)

// barWidth is that of the bar of a signal.
const barWidth = 20

// nodeLines is the page of the node.
func nodeLines(p live.Picture, width int) []string {
	n := p.Node
	var lines []string
	add := func(m mood, format string, args ...any) {
		lines = append(lines, styles[m].Render(fit(words.OneLine(fmt.Sprintf(format, args...)), width)))
	}
	head := func(text string) { lines = append(lines, "", bold.Render(fit(text, width))) }
	add(calm, "%s", nodeFacts(n))
	if n.Sentence != "" {
		for _, line := range wrap(words.OneLine(n.Sentence), width, 3) {
			add(failing, "%s", line)
		}
	}
	head("EVICTION SIGNALS")
	if len(n.Signals) == 0 {
		add(dimmed, "not known: the crew's processes aren't on this machine, or this is a recording")
	} else {
		t := signalTable(n.Signals)
		lines = append(lines, t.header(width))
		lines = append(lines, t.lines(width, 0, len(t.rows), "")...)
	}
	head("CONDITIONS")
	for _, c := range n.Conditions {
		add(conditionMood(c), "  %-20s %-8s %s, for %s", c.Type, c.Status, strings.TrimSpace(c.Reason+": "+c.Message),
			words.Age(p.At.Sub(c.LastTransitionTime.Time)))
	}
	head("OF LATE" + since(p))
	if len(p.Happenings) == 0 {
		add(dimmed, "  no eviction, no restart, no pressure")
	}
	for _, h := range slices.Backward(p.Happenings) {
		m := calm
		if h.Bad {
			m = waiting
		}
		add(m, "  %5s ago  %s", words.Age(p.At.Sub(h.At)), h.What)
	}
	return lines
}

func since(p live.Picture) string {
	if p.From.IsZero() {
		return ""
	}
	return " (the history goes back " + words.Age(p.At.Sub(p.From)) + ")"
}

func nodeFacts(n live.Node) string {
	var facts []string
	for _, fact := range []string{n.Name, n.Runtime, n.OS, n.Kernel} {
		if fact != "" {
			facts = append(facts, fact)
		}
	}
	if n.Cores > 0 {
		facts = append(facts, words.Plural(n.Cores, "core"))
	}
	if n.Load > 0 {
		facts = append(facts, "load "+strconv.FormatFloat(n.Load, 'f', 2, 64))
	}
	if n.Shutdown {
		facts = append(facts, "SHUTS DOWN")
	}
	return strings.Join(facts, ", ")
}

func conditionMood(c corev1.NodeCondition) mood {
	good := corev1.ConditionFalse
	if c.Type == corev1.NodeReady {
		good = corev1.ConditionTrue
	}
	if c.Status != good {
		return failing
	}
	return calm
}

func signalTable(signals []live.Signal) table {
	t := table{columns: []column{
		{title: "SIGNAL"},
		{title: "LEFT", right: true},
		{title: "OF", right: true},
		{title: "THRESHOLD", right: true},
		{title: "IN USE", width: barWidth},
		{title: "PATH", grows: true},
	}}
	for _, s := range signals {
		r := row{key: s.Name, cells: []string{
			s.Name, amount(s, s.Available), amount(s, s.Capacity), s.Threshold, bar(s), words.OneLine(s.Path),
		}}
		if s.Under {
			r.mood = failing
			r.cells[3] += " UNDER"
		}
		t.rows = append(t.rows, r)
	}
	return t
}

func amount(s live.Signal, n uint64) string {
	if s.Bytes {
		return bytesText(n)
	}
	return strconv.FormatUint(n, 10)
}

// bar draws how much is in use, with a mark where the threshold is.
func bar(s live.Signal) string {
	cells := []byte(strings.Repeat(".", barWidth))
	used := int(s.Full()*barWidth + 0.5)
	for i := range min(used, barWidth) {
		cells[i] = '#'
	}
	if s.Limit > 0 && s.Limit < s.Capacity {
		cells[min(barWidth-1, int(float64(barWidth)*(1-float64(s.Limit)/float64(s.Capacity))))] = '|'
	}
	return string(cells)
}

// headline is the first line of the screen.
func headline(p live.Picture, width int) string {
	name := "kubelot top"
	if p.Node.Name != "" {
		name += "  " + words.OneLine(p.Node.Name)
	}
	state, style := "not Ready", styles[failing]
	if p.Node.Ready {
		state, style = "Ready", good
	}
	var warn []string
	if kinds := pressures(p.Node); kinds != "" {
		warn = append(warn, kinds)
	}
	switch {
	case !p.Link.Up && !p.Link.Since.IsZero() || p.Link.Problem != "":
		warn = append(warn, words.OneLine(p.Link.Problem))
	case !p.Synced:
		state, style = "reads the bus", faint
	}
	left := bold.Render(name) + "  " + style.Render(state)
	if len(warn) > 0 {
		left += "  " + styles[failing].Render(strings.Join(warn, "; "))
	}
	return sides(left, p.At.Format(time.TimeOnly), width)
}

func pressures(n live.Node) string {
	var kinds []string
	for _, kind := range []struct {
		holds bool
		name  string
	}{{n.Pressure.Memory, "memory"}, {n.Pressure.Disk, "disk"}, {n.Pressure.PID, "pid"}} {
		if kind.holds {
			kinds = append(kinds, kind.name)
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	return strings.Join(kinds, " and ") + " pressure"
}
