package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/why"
	"kubelot.dev/cli/internal/words"
)

// podOrders are the orders of the pods; the first is the one at the beginning.
var podOrders = []order[live.Pod]{
	{"who waits", func(a, b live.Pod) int { return cmp.Compare(podMood(b), podMood(a)) }},
	{"name", func(live.Pod, live.Pod) int { return 0 }},
	{"age", func(a, b live.Pod) int { return b.FirstSeen.Compare(a.FirstSeen) }},
	{"restarts", func(a, b live.Pod) int { return cmp.Compare(b.Restarts, a.Restarts) }},
	{"start", func(a, b live.Pod) int { return cmp.Compare(took(b), took(a)) }},
}

// order is an order of things; where two are equal, the picture's order counts.
type order[T any] struct {
	name    string
	compare func(a, b T) int
}

// sorted are the things in the order with the number, or the other way round.
func sorted[T any](things []T, orders []order[T], n int, backwards bool) []T {
	things = slices.Clone(things)
	slices.SortStableFunc(things, func(a, b T) int {
		result := orders[n%len(orders)].compare(a, b)
		if backwards {
			return -result
		}
		return result
	})
	return things
}

// took is how long the pod's start took; zero where that isn't known.
func took(p live.Pod) time.Duration {
	if p.Start.Ready.IsZero() || p.Start.Partial {
		return 0
	}
	return max(0, p.Start.Ready.Sub(p.Start.Begin))
}

func podMood(p live.Pod) mood {
	switch {
	case p.Failed:
		return failing
	case p.State == why.Waiting || p.State == why.Stopping:
		return waiting
	case p.State == why.Ended || p.State == why.Gone:
		return dimmed
	}
	return calm
}

func podName(p live.Pod) string { return words.OneLine(p.Namespace + "/" + p.Name) }

// podTable is the table of pods: what they wait for or, if starts is set, how long the parts of their starts took.
func podTable(pods []live.Pod, now time.Time, starts bool) table {
	t := table{columns: []column{
		{title: "POD", width: 16, shrinks: true},
		{title: "READY", right: true},
		{title: "PHASE", shrinks: true},
		{title: "RST", right: true},
		{title: "AGE", right: true},
		{title: "START", right: true},
	}}
	if starts {
		for _, stage := range live.Stages() {
			t.columns = append(t.columns, column{title: strings.ToUpper(string(stage)), right: true})
		}
		// There is no room for all columns in 80, and the stages are what was asked for.
		t.columns = slices.Delete(t.columns, 1, 5)
	} else {
		t.columns = append(t.columns, column{title: "WAITS FOR", grows: true})
	}
	for _, p := range pods {
		r := row{key: p.UID, mood: podMood(p), cells: []string{
			podName(p), fmt.Sprintf("%d/%d", p.Ready, p.Total), words.OneLine(phase(p)), strconv.Itoa(p.Restarts),
			words.Age(now.Sub(p.FirstSeen)), total(p, now),
		}}
		if starts {
			r.cells = slices.Delete(r.cells, 1, 5)
			for _, stage := range live.Stages() {
				r.cells = append(r.cells, stageText(p.Start, stage, now))
			}
		} else {
			r.cells = append(r.cells, words.OneLine(p.Sentence))
		}
		t.rows = append(t.rows, r)
	}
	return t
}

// phase says first what a pod that ends does: its phase says Running.
func phase(p live.Pod) string {
	if p.State == why.Stopping {
		return "Terminating"
	}
	return p.Phase
}

// total is the time to Ready, or how long the pod has been at it.
func total(p live.Pod, now time.Time) string {
	switch {
	case !p.Start.Ready.IsZero() && !p.Start.Partial:
		return words.Brief(took(p))
	case p.State == why.Waiting:
		return words.Brief(now.Sub(p.Start.Begin).Round(time.Second)) + "+"
	}
	return "-"
}

func stageText(s live.Start, stage live.Stage, now time.Time) string {
	d, ok := s.Took(stage, now)
	if !ok {
		return "-"
	}
	text := short(d)
	for _, span := range s.Spans {
		if span.Stage == stage && span.To.IsZero() {
			return text + "+"
		}
	}
	return text
}

// short is a duration in at most five characters.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return words.Age(d)
}

// podDetail says more about the pod under the cursor.
func podDetail(p live.Pod, now time.Time, width int) []string {
	head := p.Sentence
	if head == "" {
		head = strings.TrimSuffix(fmt.Sprintf("is %s: %s", p.State, p.Answer.Detail), ": ")
	}
	lines := wrap(words.OneLine(p.Name+": "+head), width, 2)
	if len(p.Answer.Causes) > 0 && p.Answer.Causes[0].Advice != "" {
		lines = append(lines, wrap("-> "+words.OneLine(p.Answer.Causes[0].Advice), width, 1)...)
	}
	return append(lines, wrap(splitText(p.Start, now), width, 2)...)
}

// splitText is the start in one line.
func splitText(s live.Start, now time.Time) string {
	var parts []string
	for _, stage := range live.Stages() {
		if text := stageText(s, stage, now); text != "-" {
			parts = append(parts, string(stage)+" "+text)
		}
	}
	if len(parts) == 0 {
		return "start: the bus's history doesn't reach back to it"
	}
	text := "start: " + strings.Join(parts, ", ")
	if s.Partial {
		text += " (the rest is older than the bus's history)"
	}
	return text
}
