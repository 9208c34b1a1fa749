package crew

import (
	"errors"
	"fmt"

	"kubelot.dev/bus"
)

// Check proves the contracts: every topic has one writer, every reader something to read, every call
// one server.
func Check(topics []bus.Topic, contracts []bus.Contract) error {
	known := map[string]bus.Topic{}
	for _, t := range topics {
		known[t.Name()] = t
	}
	c := checker{known: known, writers: map[string]string{}, servers: map[string]string{}}
	for _, contract := range contracts {
		c.owners(contract)
	}
	for _, contract := range contracts {
		c.users(contract)
	}
	return errors.Join(c.errs...)
}

type checker struct {
	known            map[string]bus.Topic
	writers, servers map[string]string // daemon by topic
	errs             []error
}

func (c *checker) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// owners notes what the daemon writes and serves.
func (c *checker) owners(contract bus.Contract) {
	for _, t := range contract.Writes {
		c.listed(contract.Daemon, t, "writes", bus.KindState, bus.KindEvent)
		if other, taken := c.writers[t.Name()]; taken && !t.PerDaemon() {
			c.fail("%s and %s both write %s: a topic has one writer", other, contract.Daemon, t.Name())
		}
		c.writers[t.Name()] = contract.Daemon
	}
	for _, t := range contract.Serves {
		c.listed(contract.Daemon, t, "serves", bus.KindCall)
		if other, taken := c.servers[t.Name()]; taken {
			c.fail("%s and %s both serve %s: a call has one server", other, contract.Daemon, t.Name())
		}
		c.servers[t.Name()] = contract.Daemon
	}
}

// users checks that somebody owns what the daemon reads and calls.
func (c *checker) users(contract bus.Contract) {
	for _, t := range contract.Reads {
		c.listed(contract.Daemon, t, "reads", bus.KindState, bus.KindEvent)
		if c.writers[t.Name()] == "" {
			c.fail("%s reads %s, which nobody writes", contract.Daemon, t.Name())
		}
	}
	for _, t := range contract.Calls {
		c.listed(contract.Daemon, t, "calls", bus.KindCall)
		if c.servers[t.Name()] == "" {
			c.fail("%s calls %s, which nobody serves", contract.Daemon, t.Name())
		}
	}
}

func (c *checker) listed(daemon string, t bus.Topic, verb string, kinds ...bus.Kind) {
	if c.known[t.Name()] == nil {
		c.fail("%s %s %s, which topic.All doesn't list", daemon, verb, t.Name())
	}
	for _, kind := range kinds {
		if t.Kind() == kind {
			return
		}
	}
	c.fail("%s %s %s, which is of the kind %q", daemon, verb, t.Name(), t.Kind())
}
