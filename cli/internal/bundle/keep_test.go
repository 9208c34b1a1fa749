package bundle

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/cli/recording"
)

// keptOf writes the lines in pieces and returns what is kept.
func keptOf(t *testing.T, k Keep, limit int, text string) (string, bool) {
	t.Helper()
	to := k.keeper(limit)
	for len(text) > 0 {
		n := min(3, len(text))
		if _, err := io.WriteString(to, text[:n]); err != nil {
			break
		}
		text = text[n:]
	}
	data, cut := to.kept()
	return string(data), cut
}

func TestKeepWholeLines(t *testing.T) {
	const lines = "one\ntwo\nthree\nfour\n"
	for _, c := range []struct {
		keep  Keep
		limit int
		text  string
		want  string
		cut   bool
	}{
		{keepBegin, 100, lines, lines, false},
		{keepBegin, len(lines), lines, lines, false},
		{keepBegin, 10, lines, "one\ntwo\n", true},
		{keepBegin, 8, lines, "one\ntwo\n", true},
		{keepBegin, 5, "nolines", "nolin", true},
		{keepEnd, 100, lines, lines, false},
		{keepEnd, len(lines), lines, lines, false},
		{keepEnd, 8, lines, "four\n", true},
		{keepEnd, 11, lines, "three\nfour\n", true},
		{keepEnd, 5, "nolines", "lines", true},
		{keepEnd, 4, "a\nlong line without an end", " end", true},
	} {
		got, cut := keptOf(t, c.keep, c.limit, c.text)
		if got != c.want || cut != c.cut {
			t.Errorf("%d of %q with the limit %d: %q, cut %v; want %q", c.keep, c.text, c.limit, got, cut, c.want)
		}
	}
}

// recorded is a recording with retained messages and a history of numbered ones, one a second.
func recorded(t *testing.T, retained, history int) string {
	t.Helper()
	var out strings.Builder
	w, err := recording.NewWriter(&out, recording.Header{
		Created: noon, From: noon.Add(-time.Hour), Kubelot: "v1", Settings: map[string]any{"a": "b"},
	})
	add := func(after int, retained bool) {
		m := bus.Message{Subject: fmt.Sprintf("node.usage.%d", after), Time: noon.Add(time.Duration(after) * time.Second)}
		if err == nil {
			err = w.Add(recording.Of(m, json.RawMessage(`{"filling":"`+strings.Repeat("x", 100)+`"}`), retained))
		}
	}
	for i := range retained {
		add(-1000-i, true)
	}
	for i := range history {
		add(i-history, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A recording that is too large can be read: it has what was stated, and what happened last.
func TestKeepOfARecording(t *testing.T) {
	whole := recorded(t, 3, 20)
	if got, cut := keptOf(t, keepRecording, len(whole)+headerGrows, whole); got != whole || cut {
		t.Errorf("cut %v:\n%s", cut, got)
	}
	got, cut := keptOf(t, keepRecording, 2000, whole)
	if !cut || len(got) > 2000 || len(got) < 1500 {
		t.Fatalf("cut %v, %d bytes", cut, len(got))
	}
	r, err := recording.Open(strings.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	retained, history := 0, []recording.Record{}
	for record, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		if record.Retained {
			retained++
			continue
		}
		history = append(history, record)
	}
	if retained != 3 || len(history) < 4 || !history[len(history)-1].Time.Equal(noon.Add(-time.Second)) {
		t.Errorf("%d retained messages and %d others, until %v", retained, len(history), history)
	}
	if h := r.Header(); !h.From.Equal(history[0].Time) || h.Settings["a"] != "b" || h.Kubelot != "v1" {
		t.Errorf("the header is %+v", h)
	}
	// What was stated leaves room for what happened last.
	got, cut = keptOf(t, keepRecording, 2000, recorded(t, 50, 20))
	if n := strings.Count(got, `"retained"`); !cut || n < 5 || n > 10 || !strings.Contains(got, "node.usage.-1\"") {
		t.Errorf("cut %v, %d retained messages in\n%s", cut, n, got)
	}
	if got, cut := keptOf(t, keepRecording, 50, whole); got != "" || !cut {
		t.Errorf("without room for the header: %q", got)
	}
}
