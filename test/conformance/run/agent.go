package run

import (
	"errors"
	"fmt"
	"time"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/node"
	"kubelot.dev/test/testbed/proc"
)

const (
	// agentGrace is what an agent has for its end, as TimeoutStopSec= of a unit.
	agentGrace = 90 * time.Second
	lookAgain  = 20 * time.Millisecond
)

// agent is a running agent, as package units wants it.
type agent struct {
	process *proc.Process
}

func startAgent(c *cluster.Cluster, which node.Agent, args []string) (*agent, error) {
	process, err := proc.Start(proc.Spec{
		Name: string(which), Path: c.Tools.Path(string(which)), Args: args, Dir: c.Bed.Logs(),
	})
	if err != nil {
		return nil, err
	}
	return &agent{process: process}, nil
}

// Running reports whether the agent, for kubelot its supervisor, hasn't ended.
func (a *agent) Running() bool {
	select {
	case <-a.process.Done():
		return false
	default:
		return true
	}
}

// Stop ends the agent, and waits for the daemons of a crew too, which may end after their supervisor.
func (a *agent) Stop() error {
	children, err := bed.Children(a.process.PID())
	a.process.Stop(agentGrace)
	for begin := time.Now(); len(bed.Running(children)) > 0; time.Sleep(lookAgain) {
		if time.Since(begin) > agentGrace {
			return errors.Join(err, fmt.Errorf("processes %v run %s after the agent's end", bed.Running(children), agentGrace))
		}
	}
	return err
}
