package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/shutdown"
	"kubelot.dev/cli/internal/up"
	"kubelot.dev/cli/internal/words"
	"kubelot.dev/cri"
	"kubelot.dev/daemon/config"
)

func shutdownCommand(stdout *os.File) *cobra.Command {
	c := &cobra.Command{
		Use:   "shutdown",
		Short: "End the node's pods in order, as when the machine shuts down.",
		Long: `Ends the pods group by group, as the kubelet does when logind announces that the machine shuts down. The
node is not Ready and accepts no pods, and the API server gets the pods' statuses before the shutdown is done.
The command doesn't shut down the machine.

The times and groups are those of the KubeletConfiguration (shutdownGracePeriod, shutdownGracePeriodCriticalPods,
shutdownGracePeriodByPodPriority), or those of the flags. If they are configured and logind runs, the node does
this by itself, without a command.`,
		Example: `  kubelot shutdown start && poweroff
  kubelot shutdown start --grace-period 1m --critical-grace-period 10s
  kubelot shutdown state
  kubelot shutdown cancel`,
	}
	c.AddCommand(shutdownStart(stdout), shutdownState(stdout), shutdownCancel(stdout), shutdownContainers(stdout))
	return c
}

// startOptions are the flags of kubelot shutdown start.
type startOptions struct {
	busAt           busFlags
	whole, critical time.Duration
	noWait          bool
	system          bool
	output          string
}

func shutdownStart(stdout *os.File) *cobra.Command {
	var o startOptions
	c := &cobra.Command{
		Use:   "start",
		Short: "End the pods, and wait until they have ended.",
		Long: `Begins a shutdown, and shows how the pods end. With -o json it prints at the end what kubelot shutdown state -o
json prints then.

Exit codes: 0 if the pods have ended, with --no-wait if the shutdown has begun, and with --if-system-stops if there is
nothing to do; 1 if they have not ended in time, or kubelot-gc doesn't answer.`,
		Example: `  kubelot shutdown start --grace-period 1m --critical-grace-period 10s
  kubelot shutdown start -o json | jq -r .done`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context(), stdout) },
	}
	o.busAt.register(c)
	flags := c.Flags()
	flags.DurationVar(&o.whole, "grace-period", 0, "time for all pods together (default: as configured)")
	flags.DurationVar(&o.critical, "critical-grace-period", 0, "the last part of it, which is for critical pods")
	flags.BoolVar(&o.noWait, "no-wait", false, "don't wait until the pods have ended")
	flags.BoolVar(&o.system, "if-system-stops", false, "do nothing unless systemd stops the system and a time is "+
		"configured")
	offerOutput(c, &o.output, "text")
	return c
}

func (o *startOptions) run(ctx context.Context, stdout io.Writer) error {
	if err := checkOutput(o.output, "text"); err != nil {
		return err
	}
	text, end := stdout, io.Discard
	if o.output == "json" {
		text, end = io.Discard, stdout
	}
	groups, err := groupsOf(o.whole, o.critical)
	if err != nil {
		return err
	}
	if o.system {
		if goesOn, err := systemGoesOn(ctx, text); err != nil || goesOn {
			return errors.Join(err, writeJSON(end, topic.Shutdown{}))
		}
	}
	conn, err := o.busAt.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := request(ctx, conn, topic.StartShutdown, groups)
	if o.system && errors.Is(err, bus.ErrInvalid) {
		return errors.Join(say(text, "No time is configured for the pods: nothing is done."),
			writeJSON(end, topic.Shutdown{}))
	}
	if err == nil && !o.noWait {
		limited, cancel := context.WithTimeoutCause(ctx, longest(s.Groups), errTooLong)
		defer cancel()
		s, err = shutdown.Follow(limited, conn, s.Started, text)
	}
	if err != nil {
		return err
	}
	return writeJSON(end, s)
}

// slack is how long a shutdown may take beyond the time of its groups.
const slack = 30 * time.Second

var errTooLong = fmt.Errorf("the shutdown has taken %s longer than its grace periods: see kubelot shutdown state and "+
	"kubelot tap --since 5m", slack)

// longest is how long a shutdown by these groups may take.
func longest(groups []topic.ShutdownGroup) time.Duration {
	whole := slack
	for _, g := range groups {
		whole += time.Duration(g.GracePeriodSeconds) * time.Second
	}
	return whole
}

// groupsOf are the groups that the flags ask for; nil for the configured ones.
func groupsOf(whole, critical time.Duration) ([]topic.ShutdownGroup, error) {
	switch {
	case whole == 0 && critical == 0:
		return nil, nil
	case whole < time.Second:
		return nil, fmt.Errorf("--grace-period %s: want a second at least", whole)
	case critical < 0 || critical > whole:
		return nil, fmt.Errorf("--critical-grace-period %s: want a part of --grace-period %s", critical, whole)
	}
	return topic.ShutdownGroups(whole, critical), nil
}

func shutdownState(stdout *os.File) *cobra.Command {
	var (
		busAt  busFlags
		output string
	)
	c := &cobra.Command{
		Use:   "state",
		Short: "Show the progress of a shutdown.",
		Long: `Shows the groups of pods that end one after the other, and which pods haven't ended yet.

Exit codes: 0 if kubelot-gc has answered, whether or not a shutdown is under way; 1 if not.`,
		Example: "  kubelot shutdown state -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text"); err != nil {
				return err
			}
			conn, err := busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(c.Context(), busPatience)
			defer cancel()
			values, err := topic.NodeShutdown.Read(ctx, conn)
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(stdout, values[""])
			}
			_, err = fmt.Fprint(stdout, shutdown.Text(values[""], time.Now()))
			return err
		},
	}
	busAt.register(c)
	offerOutput(c, &output, "text")
	return c
}

func shutdownCancel(stdout *os.File) *cobra.Command {
	var (
		busAt  busFlags
		output string
	)
	c := &cobra.Command{
		Use:   "cancel",
		Short: "Cancel a shutdown and admit pods again; pods that have ended stay ended.",
		Long: `Cancels a shutdown of the node. Groups of pods that have not begun to end stay, and pods are admitted again.
Static pods that have ended are started again. If logind has started the shutdown, the machine may still shut
down: see shutdown -c.

Exit codes: 0 if pods are admitted again, 1 if kubelot-gc doesn't answer.`,
		Example: "  kubelot shutdown cancel\n  kubelot shutdown cancel -o json | jq .active",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text"); err != nil {
				return err
			}
			conn, err := busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			s, err := request(c.Context(), conn, topic.CancelShutdown, nil)
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(stdout, s)
			}
			return say(stdout, "Pods are admitted again.")
		},
	}
	busAt.register(c)
	offerOutput(c, &output, "text")
	return c
}

// mostGrace is what a pod has by default.
const mostGrace = 30 * time.Second

func shutdownContainers(stdout *os.File) *cobra.Command {
	var (
		flags  config.Flags
		most   time.Duration
		system bool
	)
	c := &cobra.Command{
		Use:   "containers [kubelet flags]",
		Short: "Stop the pods' containers without ending the pods; the crew must not be running.",
		Long: `Stops all running containers at the same time, each with its own grace period. The pods don't end: their
containers are started again after the boot. The unit kubelot-containers runs this command when the system
stops, after the daemons and before the runtime. Without it, systemd would send SIGTERM to the remaining
processes at the end of the shutdown, and wait 90 s for those that ignore it.

Exit codes: 0 if no container runs any more, and with --if-system-stops if there is nothing to do; 1 if one does, or
the crew runs.`,
		Example: "  kubelot shutdown containers --if-system-stops",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if system {
				if goesOn, err := systemGoesOn(c.Context(), stdout); goesOn || err != nil {
					return err
				}
			}
			resolved, err := flags.Load()
			if err == nil && !system {
				// When the system stops, the bus may stop last.
				err = up.NotRunning(c.Context(), resolved.BusSocket)
			}
			if err != nil {
				return err
			}
			timeout := resolved.Kubelet.RuntimeRequestTimeout.Duration
			client, err := cri.Dial(resolved.RuntimeEndpoint, cri.Options{Timeout: timeout})
			if err != nil {
				return err
			}
			return errors.Join(shutdown.Halt(c.Context(), client, most, stdout), client.Close())
		},
	}
	c.Flags().SortFlags = false
	c.Flags().DurationVar(&most, "grace-period", mostGrace, "the most time that a container gets")
	c.Flags().BoolVar(&system, "if-system-stops", false, "do nothing unless systemd stops the system")
	flags.Register(c.Flags())
	return c
}

// request sends a request to gc.
func request(ctx context.Context, conn *bus.Conn, action topic.ShutdownAction,
	groups []topic.ShutdownGroup,
) (topic.Shutdown, error) {
	return ask(ctx, conn, "gc", topic.ShutdownRequested, topic.ShutdownRequest{Action: action, Groups: groups})
}

// systemGoesOn reports whether systemd isn't stopping the system, and prints that.
func systemGoesOn(ctx context.Context, out io.Writer) (bool, error) {
	stopping, err := shutdown.Stopping(ctx)
	if err != nil || stopping {
		return false, err
	}
	return true, say(out, "The system goes on: nothing is done.")
}

func say(out io.Writer, line string) error {
	_, err := fmt.Fprintln(out, words.Lines(line))
	return err
}
