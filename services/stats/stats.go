package stats

import (
	"context"
	"fmt"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// interval is how often the facts are read again: memory, cores and disks can be added to a running machine.
const interval = time.Minute

// reader reads the machine's facts. The error names what could not be read; the rest is valid.
type reader func() (topic.Machine, error)

// Service publishes the machine's facts.
type Service struct {
	env  daemon.Env
	read reader
}

// New makes a service that reads the facts with read. It starts nothing.
func New(env daemon.Env, read reader) *Service { return &Service{env: env, read: read} }

// Run is the stats daemon's work.
func Run(ctx context.Context, env daemon.Env) error {
	root := env.Config.RootDir
	return New(env, func() (topic.Machine, error) { return ReadMachine(root) }).Run(ctx)
}

// Run publishes until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	out := topic.NodeMachine.Writer(s.env.Bus)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := s.publish(out); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (s *Service) publish(out *bus.Writer[topic.Machine]) error {
	m, err := s.read()
	if err != nil {
		s.env.Health.Set(topic.Degraded, "some facts of the machine can't be read: "+err.Error())
	} else {
		s.env.Health.Set(topic.Healthy, "")
	}
	if err := out.Set("", m); err != nil {
		return fmt.Errorf("publish the machine's facts: %w", err)
	}
	return nil
}
