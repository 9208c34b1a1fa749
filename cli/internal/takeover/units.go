package takeover

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/cli/internal/handover"
	"kubelot.dev/cli/internal/running"
)

// Crew is the unit of all daemons.
const Crew = "kubelot.target"

// Swap stops and disables one unit, and enables and starts another in its place. Unless well agrees that the second one
// runs, the first one runs again. The end of ctx is a reason to go back, and never leaves the node without an agent.
// The crew, whose bus is below runDir, always starts without what it knew before.
func Swap(ctx context.Context, runDir, from, to string, well func(context.Context) error) error {
	// A command of systemctl that has begun is not interrupted: nobody would know how far it has got.
	lasting := context.WithoutCancel(ctx)
	err := disable(lasting, from)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = enable(lasting, runDir, to)
	}
	if err == nil {
		err = well(ctx)
	}
	if err == nil {
		return nil
	}
	stopped := disable(lasting, to)
	if back := enable(lasting, runDir, from); back != nil {
		return errors.Join(err, stopped, fmt.Errorf("%s doesn't start again: %w: no agent may run now", from, back))
	}
	return errors.Join(fmt.Errorf("%w; %s runs again", err, from), stopped)
}

// enable enables and starts a unit.
func enable(ctx context.Context, runDir, unit string) error {
	if unit == Crew {
		if err := bus.Disown(runDir); err != nil {
			return err
		}
	}
	return running.Systemctl(ctx, "enable", "--now", unit)
}

// disable stops and disables a unit. The end of the crew's doesn't wait for the daemons, which would go on for a while
// beside a kubelet that they don't know by its unit's name; and two services outlive it.
func disable(ctx context.Context, unit string) error {
	err := running.Systemctl(ctx, "disable", "--now", unit)
	if err == nil && unit == Crew {
		return running.Systemctl(ctx, "stop", "kubelot-*.service")
	}
	return err
}

// Returnable is an error if the node can't be given to the unit by Swap: the unit is the crew by another name, as where
// kubeadm starts kubelot, or a crew runs that systemd wouldn't stop.
func Returnable(ctx context.Context, runDir, unit string) error {
	up, err := Up(runDir)
	if err != nil {
		return err
	}
	if up.PID != 0 {
		return fmt.Errorf("kubelot up runs the crew (process %d), which would go on beside the kubelet: stop it, then run "+
			"systemctl enable --now %s", up.PID, unit)
	}
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--value", "--property=Environment", unit).Output()
	if err != nil {
		return fmt.Errorf("systemctl show %s: %w", unit, err)
	}
	if strings.Contains(string(out), handover.Variable+"=") {
		return fmt.Errorf("%s is kubelot's own, which starts the crew again: install the kubelet in its place (apt install "+
			"kubelet removes kubelot-kubelet), then run systemctl enable --now %[1]s", unit)
	}
	return nil
}

// stay is how long a kubelet must run to have arrived. What is wrong with its configuration or its machine ends it
// some seconds after its start.
const stay = 10 * time.Second

// Stays is an error unless the unit's process runs, and goes on for a while.
func Stays(ctx context.Context, unit string) error {
	first, err := stateOf(ctx, unit)
	if err != nil {
		return err
	}
	for until := time.Now().Add(stay); ; {
		state, err := stateOf(ctx, unit)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case state.active != "active" || state != first:
			return fmt.Errorf("%s doesn't go on running after its start: see journalctl -u %s", unit, unit)
		case !time.Now().Before(until):
			return nil
		}
		pause.For(ctx, look)
	}
}

// unitState is what differs once a unit's process has ended, also if systemd has started the unit again.
type unitState struct{ active, mainPID, restarts string }

func stateOf(ctx context.Context, unit string) (unitState, error) {
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--property=ActiveState,MainPID,NRestarts", unit).Output()
	if err != nil {
		return unitState{}, fmt.Errorf("systemctl show %s: %w", unit, err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	return unitState{values["ActiveState"], values["MainPID"], values["NRestarts"]}, nil
}
