package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/bus"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/why"
	"kubelot.dev/cli/recording"
)

// whyNode is the argument that asks for the node instead of a pod.
const whyNode = "node"

func whyCommand(stdout *os.File) *cobra.Command {
	var (
		busAt   busFlags
		output  string
		noColor bool
		at      string
		replay  string
	)
	c := &cobra.Command{
		Use:   "why POD|node",
		Short: "Explain why a pod isn't running or isn't gone, and what to do.",
		Long: `Says in one sentence why a pod isn't ready or doesn't go away, what kubelot waits for, and what to do about it;
then what has been done so far. POD is namespace/name, a name or a UID. A static pod is also found by the name in its
manifest, and any pod by the beginning of its name.

"kubelot why node" says what keeps the node from being ready, and which pods it has ended or refused, and why. A pod
whose name is node is asked for as namespace/node.

With --at it answers as it would have at an earlier time, as far back as the bus keeps what was said. With --replay it
answers from a recording (kubelot tap --record, or bus/history.jsonl of kubelot bundle), on any machine: for its end,
or for a time before its end with --at. The command only reads.

Exit codes: 0 if there is an answer, whether or not all is well; 1 if the node knows no such pod, or the bus or the
recording can't be read.`,
		Example: `  kubelot why default/web-0
  kubelot why web-0 --at 10m
  kubelot why web-0 -o json | jq -r .sentence
  kubelot why node
  kubelot why web-0 --replay shop.jsonl --at 5m`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output, "text"); err != nil {
				return err
			}
			snapshot, then, err := lookWhy(c.Context(), &busAt, replay, at)
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
	offerOutput(c, &output, "text")
	c.Flags().BoolVar(&noColor, "no-color", false, "no colours, even on a terminal")
	c.Flags().StringVar(&at, "at", "", "answer for an earlier time: how long ago (10m), or a time such as "+
		"2026-11-20T12:00:00Z")
	c.Flags().StringVar(&replay, "replay", "", "answer from this recording")
	return c
}

// lookWhy reads what there is to answer from, off the bus or a recording, and the time for which it is.
func lookWhy(ctx context.Context, busAt *busFlags, replay, at string) (why.Snapshot, time.Time, error) {
	if replay != "" {
		return replayWhy(ctx, replay, at)
	}
	now := time.Now()
	then, err := why.TimeOf(at, now)
	if err != nil {
		return why.Snapshot{}, then, err
	}
	conn, err := busAt.connect(ctx)
	if err != nil {
		return why.Snapshot{}, then, err
	}
	defer conn.Close()
	snapshot, err := readWhy(ctx, conn, then, now)
	if err == nil && then.Equal(now) && snapshot.Pulling() {
		snapshot.Pulls = pullsUnderWay(ctx, busAt.runDir)
	}
	return snapshot, then, err
}

// replayWhy reads a recording up to a time before its end.
func replayWhy(ctx context.Context, path, at string) (snapshot why.Snapshot, then time.Time, err error) {
	file, err := os.Open(path)
	if err != nil {
		return snapshot, then, err
	}
	defer file.Close()
	reader, err := recording.Open(file)
	if err != nil {
		return snapshot, then, fmt.Errorf("%s: %w", path, err)
	}
	recorded, err := recording.ReadBus(reader)
	if err != nil {
		return snapshot, then, fmt.Errorf("%s: %w", path, err)
	}
	then, err = why.TimeOf(at, recorded.At())
	if err == nil {
		recorded, err = recorded.Until(then)
	}
	if err != nil {
		return snapshot, then, err
	}
	conn := bus.NewConn(recorded, Contract.Daemon, slog.New(slog.DiscardHandler))
	defer conn.Close()
	snapshot, err = why.Read(ctx, conn)
	return snapshot, then, err
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
