package embed

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kubelot.dev/bus"
)

// Crew is all the bus needs to know of the contracts: which subjects it keeps, and who may do what.
type Crew struct {
	// State and Event are the subject patterns of the topics of these kinds.
	State []string `json:"state"`
	Event []string `json:"event"`
	// Own are the patterns of the states that each daemon has its own key of, such as its health. They change all the
	// time, are small, and are none of State.
	Own []string `json:"own"`
	// Daemons are sorted by name.
	Daemons []Member `json:"daemons"`
}

// Member is one daemon's rights, as subject patterns.
type Member struct {
	Name string `json:"name"`
	// Publishes are the states and events it writes.
	Publishes []string `json:"publishes,omitempty"`
	// ReadsState and ReadsEvent are what it reads.
	ReadsState []string `json:"readsState,omitempty"`
	ReadsEvent []string `json:"readsEvent,omitempty"`
	// ReadsAll lifts the limits on reading.
	ReadsAll bool     `json:"readsAll,omitempty"`
	Serves   []string `json:"serves,omitempty"`
	Calls    []string `json:"calls,omitempty"`
}

// cliName is the member that belongs to no daemon: kubelot tap and its like.
const cliName = "cli"

//go:embed crew_gen.json
var builtin []byte

// BuiltinCrew is the crew this executable was built with.
func BuiltinCrew() (Crew, error) {
	var crew Crew
	if err := json.Unmarshal(builtin, &crew); err != nil {
		return crew, fmt.Errorf("decode the built-in crew: %w; generate crew_gen.json again", err)
	}
	return crew, nil
}

// CrewOf derives the crew from the topics and the contracts. Every daemon may write its own key of the
// topics that each daemon writes (health, event); the CLI reads everything.
func CrewOf(topics []bus.Topic, contracts []bus.Contract) Crew {
	crew := Crew{State: []string{}, Event: []string{}, Own: []string{}, Daemons: []Member{}}
	for _, t := range topics {
		switch {
		case t.Kind() == bus.KindState && t.PerDaemon():
			crew.Own = append(crew.Own, bus.Filter(t))
		case t.Kind() == bus.KindState:
			crew.State = append(crew.State, bus.Filter(t))
		case t.Kind() == bus.KindEvent:
			crew.Event = append(crew.Event, bus.Filter(t))
		}
	}
	cli := Member{Name: cliName, ReadsAll: true}
	for _, c := range contracts {
		if c.Daemon == cliName {
			cli.Calls = filters(c.Calls)
			continue
		}
		crew.Daemons = append(crew.Daemons, memberOf(topics, c))
	}
	crew.Daemons = append(crew.Daemons, cli)
	slices.SortFunc(crew.Daemons, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return crew
}

func memberOf(topics []bus.Topic, c bus.Contract) Member {
	m := Member{Name: c.Daemon, Serves: filters(c.Serves), Calls: filters(c.Calls)}
	writes := slices.Clone(c.Writes)
	for _, t := range topics {
		if t.PerDaemon() {
			writes = append(writes, t)
		}
	}
	for _, t := range writes {
		pattern := bus.Filter(t)
		if t.PerDaemon() {
			pattern = t.Name() + "." + c.Daemon
		}
		m.Publishes = append(m.Publishes, pattern)
		// After a restart a daemon finds in here what it had said.
		if t.Kind() == bus.KindState {
			m.ReadsState = append(m.ReadsState, pattern)
		}
	}
	for _, t := range c.Reads {
		switch t.Kind() {
		case bus.KindState:
			m.ReadsState = append(m.ReadsState, bus.Filter(t))
		case bus.KindEvent:
			m.ReadsEvent = append(m.ReadsEvent, bus.Filter(t))
		case bus.KindCall:
		}
	}
	for _, list := range []*[]string{&m.Publishes, &m.ReadsState, &m.ReadsEvent} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return m
}

func filters(topics []bus.Topic) []string {
	var list []string
	for _, t := range topics {
		list = append(list, bus.Filter(t))
	}
	slices.Sort(list)
	return slices.Compact(list)
}
