// Package text writes metrics in Prometheus' text format as they come, without holding them all.
package text

import (
	"bufio"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// ContentType is the format's.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// The types of metrics.
const (
	Counter = "counter"
	Gauge   = "gauge"
)

// Writer writes one family after the other. Samples of a family must follow its Family.
type Writer struct {
	w    *bufio.Writer
	name string
	head string
	buf  []byte
}

// NewWriter makes a writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: bufio.NewWriterSize(w, 16<<10)} }

// Flush writes what is held back. The error is the first that any write had.
func (t *Writer) Flush() error { return t.w.Flush() }

// Family begins a family. Its head is written with the first sample: a family without one doesn't appear.
func (t *Writer) Family(name, kind, help string) {
	t.name = name
	t.head = "# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n"
}

// Labels are pairs of names and values as they are written, without braces.
type Labels string

// Pairs makes labels of alternating names and values.
func Pairs(pairs ...string) Labels {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(pairs[i])
		b.WriteString(`="` + escaper.Replace(pairs[i+1]) + `"`)
	}
	return Labels(b.String())
}

// escaper makes a value what the format takes.
var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// And joins two sets of labels.
func (l Labels) And(more Labels) Labels {
	switch {
	case l == "":
		return more
	case more == "":
		return l
	}
	return l + "," + more
}

// Sample writes one value; a zero time is none. What is no number isn't written.
func (t *Writer) Sample(labels Labels, value float64, at time.Time) {
	if math.IsNaN(value) {
		return
	}
	b := append(append(t.buf[:0], t.head...), t.name...)
	t.head = ""
	if labels != "" {
		b = append(append(append(b, '{'), labels...), '}')
	}
	b = strconv.AppendFloat(append(b, ' '), value, 'g', -1, 64)
	if !at.IsZero() {
		b = strconv.AppendInt(append(b, ' '), at.UnixMilli(), 10)
	}
	t.buf = append(b, '\n')
	// The writer keeps its first error, which Flush returns.
	_, _ = t.w.Write(t.buf)
}
