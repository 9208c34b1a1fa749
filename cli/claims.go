package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/sleep"
)

// claimFlags are those of the commands on claims.
type claimFlags struct {
	busAt  busFlags
	output string
}

func (f *claimFlags) register(c *cobra.Command, text string) {
	f.busAt.register(c)
	offerOutput(c, &f.output, text)
}

func (f *claimFlags) connect(ctx context.Context, text string) (*bus.Conn, error) {
	if err := checkOutput(f.output, text); err != nil {
		return nil, err
	}
	return f.busAt.connect(ctx)
}

// askAwake asks the resource daemon, which is woken if it sleeps.
func askAwake[Req, Resp any](ctx context.Context, conn *bus.Conn, runDir string, call bus.Call[Req, Resp], req Req,
) (resp Resp, err error) {
	slept, err := sleep.Wake(runDir, "resource")
	if err != nil {
		return resp, fmt.Errorf("wake kubelot-resource, which may sleep: %w", err)
	}
	waking, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	for {
		resp, err = ask(ctx, conn, "resource", call, req)
		if !slept || !errors.Is(err, bus.ErrUnavailable) || waking.Err() != nil {
			return resp, err
		}
		pause.For(waking, wakingPause)
	}
}

// wakingPause is the pause before a daemon that is being woken is asked again.
const wakingPause = 50 * time.Millisecond

func claimsCommand(stdout *os.File) *cobra.Command {
	var flags claimFlags
	c := &cobra.Command{
		Use:   "claims",
		Short: "List the claims of devices (DRA) of this node's pods.",
		Long: `Lists the ResourceClaims that pods of this node have, or whose drivers have not given them back, with the pods
and with how far each driver is. A driver that is "gone" isn't registered on this node: a pod that has ended waits for
it, as only the driver can take back what it has prepared.

Exit codes: 0 if kubelot-resource has answered, 1 if not.`,
		Example: `  kubelot claims
  kubelot claims -o json | jq '.claims[] | select(.drivers[].registered != true) | .name'
  kubelot claims forget default/gpu`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			conn, err := flags.connect(c.Context(), "table")
			if err != nil {
				return err
			}
			defer conn.Close()
			reply, err := askAwake(c.Context(), conn, flags.busAt.runDir, topic.ResourceClaims, topic.ClaimsRequest{})
			if err != nil {
				return err
			}
			if flags.output == "json" {
				return writeJSON(stdout, reply)
			}
			return say(stdout, claimsTable(reply.Claims))
		},
	}
	flags.register(c, "table")
	c.AddCommand(claimsForget(stdout))
	return c
}

func claimsForget(stdout *os.File) *cobra.Command {
	var flags claimFlags
	c := &cobra.Command{
		Use:   "forget NAMESPACE/CLAIM",
		Short: "Give up on the drivers of a claim that are gone for good.",
		Long: `Ends the wait for drivers that aren't registered on this node any more and have not given back the claim. It is
the way out where a driver has been removed from the cluster while pods had its devices: those pods stay Terminating
until the driver has answered. What the driver has prepared on the node stays as it is, since only the driver knows what
that was. Bring the driver back instead, if you can.

It is refused as long as a pod with the claim has not ended, and where the drivers are there.

Exit codes: 0 if a driver is no longer waited for, 1 if not.`,
		Example: `  kubelot claims forget default/gpu`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			namespace, name, ok := strings.Cut(args[0], "/")
			if !ok || namespace == "" || name == "" {
				return fmt.Errorf("%q: want NAMESPACE/CLAIM, as kubelot claims shows it", args[0])
			}
			conn, err := flags.connect(c.Context(), "text")
			if err != nil {
				return err
			}
			defer conn.Close()
			request := topic.ForgetRequest{Namespace: namespace, Name: name}
			reply, err := askAwake(c.Context(), conn, flags.busAt.runDir, topic.ResourceForget, request)
			if err != nil {
				return err
			}
			if flags.output == "json" {
				return writeJSON(stdout, reply)
			}
			return say(stdout, "claim "+args[0]+": no longer waits for "+strings.Join(reply.Drivers, ", "))
		},
	}
	flags.register(c, "text")
	return c
}

// claimsTable draws the claims, a line each.
func claimsTable(list []topic.HeldClaim) string {
	if len(list) == 0 {
		return "No pod of this node has a claim of devices."
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "CLAIM\tPODS\tDRIVERS")
	for _, c := range list {
		var pods, drivers []string
		for _, p := range c.Pods {
			name := p.Namespace + "/" + p.Name
			if p.Name == "" {
				name = "a pod that is gone (" + p.UID + ")"
			} else if p.Ended {
				name += " (ended)"
			}
			pods = append(pods, name)
		}
		for _, d := range c.Drivers {
			state := d.Standing
			if !d.Registered {
				state += ", gone"
			}
			drivers = append(drivers, d.Name+" ("+state+")")
		}
		fmt.Fprintf(w, "%s/%s\t%s\t%s\n", c.Namespace, c.Name, strings.Join(pods, ", "), strings.Join(drivers, ", "))
	}
	// A strings.Builder takes every write.
	_ = w.Flush()
	return strings.TrimSuffix(table.String(), "\n")
}
