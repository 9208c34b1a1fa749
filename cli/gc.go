package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/garbage"
	"kubelot.dev/cli/internal/paint"
)

// planPatience is how long gc may take for its plan, for which it lists what the runtime has.
const planPatience = 30 * time.Second

func gcCommand(stdout *os.File) *cobra.Command {
	var (
		busAt                         busFlags
		output                        string
		noColor, dryRun, all, squeeze bool
	)
	c := &cobra.Command{
		Use:   "gc --dry-run",
		Short: "Show what gc would remove, evict and rotate now, and why.",
		Long: `Asks kubelot-gc what it would do now about dead containers and sandboxes, images, logs, and pods to evict.
The command changes nothing: gc acts by itself when it is time. --all also shows what gc keeps, and why.

Exit codes: 0 if kubelot-gc has answered, 1 if not.`,
		Example: `  kubelot gc --dry-run
  kubelot gc --dry-run --all
  kubelot gc --dry-run --disk-pressure
  kubelot gc --dry-run -o json | jq '.decisions[] | select(.action == "remove image") | .object'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !dryRun {
				return errors.New("gc collects by itself; use --dry-run to see what it would do now")
			}
			if err := checkOutput(output, "table"); err != nil {
				return err
			}
			conn, err := busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(c.Context(), planPatience)
			defer cancel()
			plan, err := ask(ctx, conn, "gc", topic.GCPlan, topic.GCPlanRequest{Images: squeeze})
			if err != nil {
				return err
			}
			if output == "table" {
				_, err := fmt.Fprint(stdout, garbage.Table(plan, all, paint.For(stdout, noColor)))
				return err
			}
			plan.Decisions = garbage.Sort(plan.Decisions, all)
			return writeJSON(stdout, plan)
		},
	}
	busAt.register(c)
	flags := c.Flags()
	flags.BoolVar(&dryRun, "dry-run", false, "only show what gc would do")
	flags.BoolVar(&all, "all", false, "also show what gc keeps")
	flags.BoolVar(&squeeze, "disk-pressure", false, "assume disk pressure, under which gc removes all unused images")
	offerOutput(c, &output, "table")
	flags.BoolVar(&noColor, "no-color", false, "no colours, even on a terminal")
	return c
}
