package report

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Table writes the measures side by side in Markdown: the median of the rounds with the smallest and the largest
// value, and the ratio to the kubelet in the same round.
func Table(w io.Writer, r Report) error {
	var subjects []string
	for _, s := range Subjects {
		if r.Has(s) {
			subjects = append(subjects, s)
		}
	}
	out := &table{w: w}
	out.row(append([]string{""}, subjects...)...)
	out.rule(len(subjects))
	for _, m := range r.Measures() {
		cells := []string{m.Title}
		for _, s := range subjects {
			cells = append(cells, r.cell(s, m))
		}
		out.row(cells...)
	}
	return out.err
}

func (r Report) cell(subject string, m Measure) string {
	figure := r.Of(subject, m.Key)
	if figure.Rounds == 0 {
		return "-"
	}
	text := m.Unit.Format(figure.Median)
	if figure.Rounds > 1 {
		least, _, _ := strings.Cut(m.Unit.Format(figure.Least), " ")
		most, _, _ := strings.Cut(m.Unit.Format(figure.Most), " ")
		text += fmt.Sprintf(" (%s to %s)", least, most)
	}
	if subject == Kubelet {
		return text
	}
	ratio := r.Compare(subject, Kubelet, Ratio, m.Key)
	if ratio.Rounds > 0 && !math.IsInf(ratio.Median, 0) && !math.IsNaN(ratio.Median) {
		text += fmt.Sprintf(", %.2f x", ratio.Median)
	}
	return text
}

// table writes rows until the first error.
type table struct {
	w   io.Writer
	err error
}

func (t *table) row(cells ...string) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, "| %s |\n", strings.Join(cells, " | "))
	}
}

func (t *table) rule(columns int) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, "|---%s|\n", strings.Repeat("|---", columns))
	}
}
