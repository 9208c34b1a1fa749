package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/restart"
	"kubelot.dev/cli/internal/words"
)

func restartCommand(stdout *os.File) *cobra.Command {
	var (
		busAt     busFlags
		at        runtimeFlags
		container string
		wait      time.Duration
		output    string
	)
	c := &cobra.Command{
		Use:   "restart POD",
		Short: "Restart a container of a pod, and wait until it runs again.",
		Long: `Has the container runtime stop a container, with the pod's grace period. podsync then starts it again, as after
any end: it counts as a restart, and a container that was restarted often waits for its back-off. The preStop hook
doesn't run. POD is namespace/name, a name or a UID. A container that might not start again is refused.

Exit codes: 0 if the container runs again, or with --wait 0 has stopped; 1 if not.`,
		Example: `  kubelot restart default/web-0
  kubelot restart default/web-0 --container app --wait 5m
  kubelot restart default/web-0 -o json | jq -r .id`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output, "text"); err != nil {
				return err
			}
			conn, err := busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			target, err := pick(c.Context(), conn, args[0], container)
			if err != nil {
				return err
			}
			at.runDir = busAt.runDir
			client, err := at.dial()
			if err != nil {
				return err
			}
			defer client.Close()
			begun := time.Now()
			if err := client.StopContainer(c.Context(), target.ID, target.Grace); err != nil {
				return err
			}
			done := restarted{Ref: target.Ref, Container: target.Container, Stopped: target.ID}
			if wait > 0 {
				ctx, cancel := context.WithTimeoutCause(c.Context(), wait, fmt.Errorf("waited %s", wait))
				defer cancel()
				if done.ID, err = restart.Await(ctx, conn, target); err != nil {
					return err
				}
				done.Seconds = time.Since(begun).Seconds()
			}
			if output == "json" {
				return writeJSON(stdout, done)
			}
			return say(stdout, done.String())
		},
	}
	busAt.register(c)
	at.register(c)
	c.Flags().StringVarP(&container, "container", "c", "", "the container; may be left out if the pod has only one")
	c.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait until it runs again; 0 doesn't wait")
	offerOutput(c, &output, "text")
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return podNames(c.Context(), &busAt), cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

// restarted is a container that was stopped, and its successor if that was waited for.
type restarted struct {
	topic.Ref
	Container string `json:"container"`
	// Stopped is the ID of the one that was stopped, ID that of the one that runs.
	Stopped string  `json:"stopped"`
	ID      string  `json:"id,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

func (r restarted) String() string {
	if r.ID == "" {
		return fmt.Sprintf("container %s has stopped", r.Container)
	}
	return fmt.Sprintf("container %s runs again as %s, after %s", r.Container, r.ID,
		words.Brief(time.Duration(r.Seconds*float64(time.Second))))
}

func pick(ctx context.Context, conn *bus.Conn, pod, container string) (restart.Target, error) {
	ctx, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	updates, err := topic.PodUpdate.Read(ctx, conn)
	if err != nil {
		return restart.Target{}, err
	}
	observations, err := topic.PLEGEvent.Read(ctx, conn)
	if err != nil {
		return restart.Target{}, err
	}
	return restart.Pick(updates, observations, pod, container)
}
