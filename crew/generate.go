package crew

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kubelot.dev/bus"
	"kubelot.dev/bus/embed"
	"kubelot.dev/cli"
)

// Permissions is the content of bus/embed/crew_gen.json.
func Permissions(topics []bus.Topic, contracts []bus.Contract) ([]byte, error) {
	data, err := json.MarshalIndent(embed.CrewOf(topics, append(slices.Clone(contracts), cli.Contract)), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the crew: %w", err)
	}
	return append(data, '\n'), nil
}

// Dataflow is the content of docs/dataflow.md.
func Dataflow(topics []bus.Topic, contracts []bus.Contract) []byte {
	// One sentence says that the command line reads everything; the pictures show what it calls.
	contracts = append(slices.Clone(contracts), bus.Contract{Daemon: cli.Contract.Daemon, Calls: cli.Contract.Calls})
	var out strings.Builder
	out.WriteString("# Who says what to whom\n\n" +
		"Generated from the daemons' contracts (`services/*/contract.go`) and the topics (`bus/topic`).\n" +
		"Don't edit it: `go run ./cmd/contracts` in `crew/` writes it again.\n\n" +
		"A *state* keeps the last value of every key and hands it to a new reader first; an *event* is kept as a\n" +
		"bounded history; a *call* is a request with one reply. Each has one owner, and the bus holds every daemon to it.\n" +
		"The command line tool may read all states and events and writes none.\n")
	for _, section := range []struct {
		kind               bus.Kind
		title, owner, user string
	}{
		{bus.KindState, "States", "writer", "readers"},
		{bus.KindEvent, "Events", "writer", "readers"},
		{bus.KindCall, "Calls", "served by", "called by"},
	} {
		fmt.Fprintf(&out, "\n## %s\n\n| topic | %s | %s | payload | |\n|---|---|---|---|---|\n", section.title,
			section.owner, section.user)
		for _, t := range topics {
			if t.Kind() == section.kind {
				out.WriteString(row(t, contracts))
			}
		}
	}
	out.WriteString("\n## Picture\n\n```mermaid\nflowchart LR\n")
	for _, edge := range edges(contracts) {
		out.WriteString("  " + edge + "\n")
	}
	out.WriteString("```\n\nLeft out: `health` and `event`, which every daemon writes, and what a daemon reads back " +
		"of its own.\n" +
		"Dashed arrows are calls.\n")
	return []byte(out.String())
}

// Flows is the content of cli/internal/ui/flows.json: who writes and reads each state and event, without who reads
// everything. The page that kubelot ui serves draws it, since the command line doesn't know the daemons' contracts.
func Flows(topics []bus.Topic, contracts []bus.Contract) ([]byte, error) {
	type flow struct {
		Topic   string   `json:"topic"`
		Kind    bus.Kind `json:"kind"`
		Writer  string   `json:"writer,omitempty"`
		Readers []string `json:"readers"`
	}
	var flows []flow
	for _, kind := range []bus.Kind{bus.KindState, bus.KindEvent} {
		for _, t := range topics {
			if t.Kind() != kind {
				continue
			}
			f := flow{Topic: t.Name(), Kind: kind, Readers: []string{}}
			if !t.PerDaemon() {
				f.Writer = strings.Join(daemonsOf(t, contracts, func(c bus.Contract) []bus.Topic { return c.Writes }), ", ")
			}
			f.Readers = append(f.Readers, daemonsOf(t, contracts, func(c bus.Contract) []bus.Topic { return c.Reads })...)
			flows = append(flows, f)
		}
	}
	data, err := json.MarshalIndent(flows, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode who says what to whom: %w", err)
	}
	return append(data, '\n'), nil
}

func row(t bus.Topic, contracts []bus.Contract) string {
	name := t.Name()
	if t.Keys() != "" {
		name += "." + t.Keys()
	}
	owners := daemonsOf(t, contracts, func(c bus.Contract) []bus.Topic {
		return append(slices.Clone(c.Writes), c.Serves...)
	})
	users := daemonsOf(t, contracts, func(c bus.Contract) []bus.Topic { return append(slices.Clone(c.Reads), c.Calls...) })
	owner := strings.Join(owners, ", ")
	switch {
	case t.PerDaemon():
		owner = "each its own"
	case owner == "":
		owner = "–"
	}
	reader := strings.Join(users, ", ")
	if reader == "" {
		reader = "–"
	}
	payload := strings.TrimPrefix(t.Payload().String(), "*")
	return fmt.Sprintf("| `%s` | %s | %s | `%s` v%d | %s |\n", name, owner, reader, payload, t.Schema(), t.Doc())
}

func daemonsOf(t bus.Topic, contracts []bus.Contract, list func(bus.Contract) []bus.Topic) []string {
	var names []string
	for _, c := range contracts {
		if contains(list(c), t) {
			names = append(names, c.Daemon)
		}
	}
	return names
}

func contains(list []bus.Topic, t bus.Topic) bool {
	return slices.ContainsFunc(list, func(o bus.Topic) bool { return o.Name() == t.Name() })
}

// edges are the arrows of the picture: one per pair of daemons and kind of arrow, with all its topics.
func edges(contracts []bus.Contract) []string {
	var list []string
	for _, from := range contracts {
		for _, to := range contracts {
			if from.Daemon == to.Daemon {
				continue
			}
			if names := shared(from.Writes, to.Reads); names != "" {
				list = append(list, fmt.Sprintf("%s -- %q --> %s", from.Daemon, names, to.Daemon))
			}
			if names := shared(from.Calls, to.Serves); names != "" {
				list = append(list, fmt.Sprintf("%s -. %q .-> %s", from.Daemon, names, to.Daemon))
			}
		}
	}
	return list
}

func shared(a, b []bus.Topic) string {
	var names []string
	for _, t := range a {
		if !t.PerDaemon() && contains(b, t) {
			names = append(names, t.Name())
		}
	}
	return strings.Join(names, "<br/>")
}
