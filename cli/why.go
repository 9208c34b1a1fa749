package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/why"
)

func whyCommand(stdout *os.File) *cobra.Command {
	var (
		busAt   busFlags
		output  string
		noColor bool
	)
	c := &cobra.Command{
		Use:   "why POD",
		Short: "Explain why a pod isn't running or isn't gone, and what to do.",
		Long: `Shows what the daemons know about a pod: why it isn't ready or doesn't go away, what to do about it, and what
has been done so far. POD is namespace/name, a name or a UID. A static pod is also found by the name in its
manifest, and any pod by the beginning of its name.`,
		Example: `  kubelot why default/web-0
  kubelot why web-0 -o json | jq .causes`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("-o %q: want text or json", output)
			}
			conn, err := busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			snapshot, err := why.Read(c.Context(), conn)
			if err != nil {
				return err
			}
			ref, err := why.Find(snapshot, args[0])
			if err != nil {
				return err
			}
			now := time.Now()
			answer := why.Explain(snapshot, ref, now)
			if output == "text" {
				_, err := fmt.Fprint(stdout, why.Text(answer, now, paint.For(stdout, noColor)))
				return err
			}
			return writeJSON(stdout, answer)
		},
	}
	busAt.register(c)
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	c.Flags().BoolVar(&noColor, "no-color", false, "no colours, even on a terminal")
	complete(c, "output", []string{"text", "json"})
	return c
}
