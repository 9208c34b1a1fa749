package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/bus"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/why"
)

// whyNode is the argument that asks for the node instead of a pod.
const whyNode = "node"

func whyCommand(stdout *os.File) *cobra.Command {
	var (
		busAt   busFlags
		output  string
		noColor bool
		at      string
	)
	c := &cobra.Command{
		Use:   "why POD|node",
		Short: "Explain why a pod isn't running or isn't gone, and what to do.",
		Long: `Says in one sentence why a pod isn't ready or doesn't go away, what kubelot waits for, and what to do about it;
then what has been done so far. POD is namespace/name, a name or a UID. A static pod is also found by the name in its
manifest, and any pod by the beginning of its name.

"kubelot why node" says what keeps the node from being ready, and which pods it has ended or refused, and why. A pod
whose name is node is asked for as namespace/node.

With --at it answers as it would have at an earlier time, as far back as the bus keeps what was said. The command only
reads.`,
		Example: `  kubelot why default/web-0
  kubelot why web-0 --at 10m
  kubelot why web-0 -o json | jq -r .sentence
  kubelot why node`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("-o %q: want text or json", output)
			}
			now := time.Now()
			then, err := why.TimeOf(at, now)
			if err != nil {
				return err
			}
			conn, err := busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			snapshot, err := readWhy(c.Context(), conn, then, now)
			if err != nil {
				return err
			}
			answer, text, err := explainWhy(snapshot, args[0], then, paint.For(stdout, noColor))
			switch {
			case err != nil:
				return err
			case output == "json":
				return writeJSON(stdout, answer)
			}
			_, err = fmt.Fprint(stdout, text)
			return err
		},
	}
	busAt.register(c)
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	c.Flags().BoolVar(&noColor, "no-color", false, "no colours, even on a terminal")
	c.Flags().StringVar(&at, "at", "", "answer for an earlier time: how long ago (10m), or a time such as "+
		"2026-11-20T12:00:00Z")
	complete(c, "output", []string{"text", "json"})
	return c
}

func readWhy(ctx context.Context, conn *bus.Conn, then, now time.Time) (why.Snapshot, error) {
	if then.Equal(now) {
		return why.Read(ctx, conn)
	}
	return why.ReadAt(ctx, conn, then, now)
}

// explainWhy answers for a pod or the node, as a value and as text.
func explainWhy(snapshot why.Snapshot, name string, then time.Time, p paint.Painter) (answer any, text string,
	err error,
) {
	if name == whyNode {
		node := why.ExplainNode(snapshot, then)
		return node, why.NodeText(node, then, p), nil
	}
	ref, err := why.Find(snapshot, name)
	if err != nil {
		return nil, "", err
	}
	pod := why.Explain(snapshot, ref, then)
	return pod, why.Text(pod, then, p), nil
}
