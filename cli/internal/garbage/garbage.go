// Package garbage is the table of what gc would remove, evict and rotate, and of what it keeps.
//
// # Guarantees
//
// Table is pure. What goes comes first; every line says why.
package garbage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/words"
)

// order is how actions follow each other in the table.
var order = []topic.Action{
	topic.ActionEvict, topic.ActionRemoveContainer, topic.ActionRemoveSandbox, topic.ActionRemoveImage,
	topic.ActionRemoveLog, topic.ActionRotateLog, topic.ActionKeep,
}

// Sort puts the decisions into the table's order, and leaves out what is kept unless all is asked for.
func Sort(decisions []topic.Decision, all bool) []topic.Decision {
	out := make([]topic.Decision, 0, len(decisions))
	for _, d := range decisions {
		if all || d.Action != topic.ActionKeep {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b topic.Decision) int {
		return cmp.Compare(slices.Index(order, a.Action), slices.Index(order, b.Action))
	})
	return out
}

// Table draws the plan.
func Table(plan topic.GCPlanReply, all bool, p paint.Painter) string {
	var text strings.Builder
	if plan.Waiting != "" {
		fmt.Fprintln(&text, p.Paint(paint.Yellow, "Nothing is removed now: "+words.OneLine(plan.Waiting)+"."))
	}
	rows := Sort(plan.Decisions, all)
	if len(rows) == 0 {
		fmt.Fprintln(&text, "There is nothing to remove, evict or rotate; --all shows what is kept, and why.")
		return text.String()
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ACTION\tOBJECT\tPOD\tSIZE\tWHY")
	for _, d := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", d.Action, words.OneLine(object(d)), words.OneLine(pod(d)),
			size(d.FreedBytes), words.OneLine(d.Reason))
	}
	// A strings.Builder takes every write.
	_ = w.Flush()
	lines := strings.SplitAfter(table.String(), "\n")
	for i, line := range lines {
		line, newline := strings.TrimSuffix(line, "\n"), line != ""
		switch {
		case i == 0:
			line = p.Paint(paint.Bold, line)
		case i <= len(rows) && rows[i-1].Action == topic.ActionEvict:
			line = p.Paint(paint.Red, line)
		case i <= len(rows) && rows[i-1].Action == topic.ActionKeep:
			line = p.Paint(paint.Dim, line)
		}
		text.WriteString(line)
		if newline {
			text.WriteByte('\n')
		}
	}
	return text.String()
}

// idLength is how much of a container's ID distinguishes it from others, as crictl shows it.
const idLength = 13

func object(d topic.Decision) string {
	const full = 64
	if len(d.Object) == full && !strings.ContainsAny(d.Object, "/:.") {
		return d.Object[:idLength]
	}
	return d.Object
}

func pod(d topic.Decision) string {
	if d.Pod == nil {
		return "-"
	}
	return d.Pod.Namespace + "/" + d.Pod.Name
}

func size(n uint64) string {
	switch {
	case n == 0:
		return "-"
	case n < 1<<20:
		return fmt.Sprintf("%.1fKi", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%.1fMi", float64(n)/(1<<20))
	}
}
