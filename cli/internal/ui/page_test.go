package ui

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// Both files are generated from the daemons' contracts, which the command line doesn't import.
func TestFlowsAreThoseOfTheContracts(t *testing.T) {
	document, err := os.ReadFile("../../../docs/dataflow.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []flow
	for line := range strings.Lines(string(document)) {
		if f, ok := flowOf(line); ok {
			all = append(all, f)
		}
	}
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(all); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want.Bytes(), flowsJSON) {
		t.Error("flows.json isn't what docs/dataflow.md says: run `go run ./cmd/contracts` in crew/")
	}
	known := map[string]bool{}
	for _, f := range all {
		known[f.Topic] = true
	}
	for _, each := range topic.All() {
		if each.Kind() != bus.KindCall && !known[each.Name()] {
			t.Errorf("topic %s isn't in docs/dataflow.md as it is read here", each.Name())
		}
	}
}

// flowOf reads a row of the tables: topic, writer, readers, payload, what it states.
func flowOf(line string) (f flow, ok bool) {
	cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
	if len(cells) != 5 || !strings.HasPrefix(line, "| `") {
		return f, false
	}
	name, _, _ := strings.Cut(strings.Trim(cells[0], " `"), ".<")
	for _, t := range topic.All() {
		if t.Name() == name && t.Kind() != bus.KindCall {
			f.Kind = string(t.Kind())
		}
	}
	f.Topic, f.Writer, f.Readers = name, cells[1], []string{}
	if f.Writer == "each its own" {
		f.Writer = ""
	}
	if cells[2] != "–" {
		f.Readers = strings.Split(cells[2], ", ")
	}
	return f, f.Kind != ""
}
