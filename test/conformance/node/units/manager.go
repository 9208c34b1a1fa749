package units

import (
	"fmt"
	"path/filepath"
	"sync"
)

// Process is a running agent.
type Process interface {
	// Running reports whether the agent has not ended.
	Running() bool
	// Stop ends the agent, waits until it and all it started have ended, and fails if that takes too long.
	Stop() error
}

// Manager has the unit.
type Manager struct {
	// launch starts the agent that the program and its arguments, as the suite knows them, stand for.
	launch func(args []string) (Process, error)

	// mu is held while a command is at work: they go one after the other.
	mu      sync.Mutex
	unit    string
	args    []string
	process Process
}

// New is a manager without a unit.
func New(launch func(args []string) (Process, error)) *Manager { return &Manager{launch: launch} }

// Close ends the agent, if it runs.
func (m *Manager) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.end()
}

// do runs a command line and returns what it prints.
func (m *Manager) do(argv []string) (string, error) {
	c, err := parse(argv)
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch c.verb {
	case version:
		// From 240 on the suite has the log appended to.
		return "systemd 252 (of the test bed)\n", nil
	case run:
		return "", m.run(c)
	case list:
		return m.list(c), nil
	default:
		return "", m.control(c)
	}
}

func (m *Manager) run(c command) error {
	if m.running() {
		return fmt.Errorf("unit %s.service runs already", m.unit)
	}
	m.unit, m.args = c.unit, c.args
	return m.begin()
}

// list prints the unit as systemctl does; the suite takes the first word that begins with kubelet- for its name.
func (m *Manager) list(c command) string {
	if known, _ := filepath.Match(c.unit, m.unit); m.unit == "" || !known || c.running && !m.running() {
		return "0 loaded units listed.\n"
	}
	state := "inactive dead"
	if m.running() {
		state = "active running"
	}
	return fmt.Sprintf("%s.service loaded %s %s\n1 loaded units listed.\n", m.unit, state, filepath.Base(m.args[0]))
}

// control does what concerns a unit that is known.
func (m *Manager) control(c command) error {
	if c.unit != m.unit || m.unit == "" {
		return fmt.Errorf("unit %s.service not found", c.unit)
	}
	switch c.verb {
	case start:
		if m.running() {
			return nil
		}
		return m.begin()
	case restart:
		if err := m.end(); err != nil {
			return err
		}
		return m.begin()
	case stop, kill:
		return m.end()
	default: // reset-failed: nothing is counted here
		return nil
	}
}

func (m *Manager) running() bool { return m.process != nil && m.process.Running() }

func (m *Manager) begin() error {
	process, err := m.launch(m.args)
	if err != nil {
		return err
	}
	m.process = process
	return nil
}

func (m *Manager) end() error {
	if m.process == nil {
		return nil
	}
	if err := m.process.Stop(); err != nil {
		return fmt.Errorf("stop unit %s.service: %w", m.unit, err)
	}
	m.process = nil
	return nil
}
