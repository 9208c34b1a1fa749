package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"kubelot.dev/bus"
	"kubelot.dev/cli/internal/bundle"
	"kubelot.dev/cli/internal/live/feed"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/tap"
	"kubelot.dev/cli/internal/top"
	"kubelot.dev/cli/recording"
)

const (
	// topHistory is how far back the view reads; the bus keeps at most minutes of a busy node and hours of a quiet one.
	topHistory = 6 * time.Hour
	// topTapHistory is how far back the tap in the view begins.
	topTapHistory = 30 * time.Minute
	// topReadEvery is the pause between two readings of processes.
	topReadEvery = 2 * time.Second
	// topOnceReadEvery is that of --once, which needs two of them for a rate.
	topOnceReadEvery = 500 * time.Millisecond
	// topOncePatience bounds how long --once reads: the whole history, on a node that may have no processor to spare.
	topOncePatience = time.Minute
)

// topOptions are the flags of kubelot top.
type topOptions struct {
	busAt   busFlags
	once    bool
	output  string
	noColor bool
	replay  string
	speed   float64
	at      string
}

func topCommand(stdout *os.File) *cobra.Command {
	var o topOptions
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch the node's daemons, pods, disks and pressure in the terminal.",
		Long: `Shows the node in the whole terminal, live: its pods with what they wait for and how long the parts of their
starts took; the daemons with their health, CPU, memory and what they do now; the node with its eviction thresholds,
conditions, and what has happened of late. Keys open the answer of kubelot why, the tap, or the logs of what is under
the cursor; ? shows all keys.

--once prints everything once, for a script, and so does an output that is no terminal; -o json prints the whole
picture. --replay plays a recording of kubelot tap instead of watching a node.

LAG is the longest time of the last minute from when a daemon made a message to when the bus had stored it. RST of a
daemon is what systemd has counted, or what was seen since the beginning of the bus's history.

Exit codes: 0 when it is closed, 1 if the bus can't be reached or the file is no recording.`,
		Example: `  kubelot top
  kubelot top --once
  kubelot top -o json | jq '.pods[] | select(.state == "waiting") | .sentence'
  kubelot top --replay shop.jsonl --speed 10 --at 5m`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(o.output, "text"); err != nil {
				return err
			}
			o.once = o.once || o.output == "json" || !term.IsTerminal(int(stdout.Fd()))
			if o.replay != "" {
				return o.play(c.Context(), stdout)
			}
			return o.watch(c.Context(), stdout)
		},
	}
	o.busAt.register(c)
	flags := c.Flags()
	flags.BoolVar(&o.once, "once", false, "print everything once, as text")
	flags.StringVarP(&o.output, "output", "o", "text", "text or json; json prints the picture once")
	flags.BoolVar(&o.noColor, "no-color", false, "no colours, even on a terminal")
	flags.StringVar(&o.replay, "replay", "", "play this recording of kubelot tap instead of watching the node")
	flags.Float64Var(&o.speed, "speed", 1, "with --replay, how many times faster than it was; 0 shows its end at once")
	flags.StringVar(&o.at, "at", "", "with --replay, begin this long after the first message, such as 5m, or at this "+
		"time (RFC 3339)")
	complete(c, "output", []string{"text", "json"})
	return c
}

// watch shows the node.
func (o *topOptions) watch(ctx context.Context, stdout *os.File) error {
	conn, err := o.busAt.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	every := topReadEvery
	if o.once {
		every = topOnceReadEvery
	}
	follows := feed.Node(ctx, conn, feed.Options{RunDir: o.busAt.runDir, Since: topHistory, Every: every})
	// A feed ends when nobody reads it any more and its context has ended.
	defer drain(cancel, follows)
	if o.once {
		return o.print(ctx, follows, stdout)
	}
	return top.Run(ctx, top.Options{
		Feed: follows, In: os.Stdin, Out: stdout, NoColor: o.noColor,
		Sources: top.Sources{
			Tap: func(ctx context.Context, f tap.Filter, out io.Writer) error {
				return tapFor(ctx, conn.Transport(), f, out)
			},
			Journal: bundle.Journal, Files: true,
		},
	})
}

// drain ends a feed and waits for its end.
func drain(cancel context.CancelFunc, f feed.Feed) {
	cancel()
	for range f.Inputs {
	}
}

func tapFor(ctx context.Context, transport bus.Transport, f tap.Filter, out io.Writer) error {
	return tap.Run(ctx, transport, tap.Options{
		Filter: f, Format: tap.Format{Painter: paint.Painter{On: true}}, Since: topTapHistory,
	}, out)
}

// print prints one picture.
func (o *topOptions) print(ctx context.Context, f feed.Feed, stdout *os.File) error {
	picture, err := top.Once(ctx, f, topOncePatience)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return writeJSON(stdout, picture)
	}
	_, err = io.WriteString(stdout, top.Text(picture))
	return err
}

// play shows a recording.
func (o *topOptions) play(ctx context.Context, stdout *os.File) error {
	after, at, err := moment(o.at)
	if err != nil {
		return err
	}
	if o.speed < 0 || math.IsNaN(o.speed) {
		return fmt.Errorf("--speed %v: want how many times faster than it was, or 0 for its end at once", o.speed)
	}
	if o.once {
		o.speed = 0
	}
	if at.IsZero() && after > 0 {
		first, err := firstOf(o.replay)
		if err != nil {
			return err
		}
		at = first.Add(after)
	}
	file, reader, err := openRecording(o.replay)
	if err != nil {
		return err
	}
	defer file.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := feed.ReplayOptions{Speed: o.speed, Begin: at}
	if o.once {
		options.End = at // the picture of that moment
	}
	plays := feed.Replay(ctx, reader, options)
	defer drain(cancel, plays)
	if o.once {
		return o.print(ctx, plays, stdout)
	}
	return top.Run(ctx, top.Options{
		Feed: plays, In: os.Stdin, Out: stdout, NoColor: o.noColor,
		Sources: top.Sources{Tap: func(ctx context.Context, f tap.Filter, out io.Writer) error {
			return tapRecorded(ctx, o.replay, plays.Now(), f, out)
		}},
	})
}

// tapRecorded shows what the tap would have shown at a moment of a recording.
func tapRecorded(ctx context.Context, path string, at time.Time, f tap.Filter, out io.Writer) error {
	file, reader, err := openRecording(path)
	if err != nil {
		return err
	}
	defer file.Close()
	past, err := recording.BusAt(reader, at)
	if err != nil {
		return err
	}
	return tap.Run(ctx, past, tap.Options{
		Filter: f, Since: time.Since(past.Begins()),
		Format: tap.Format{Painter: paint.Painter{On: true}, Begin: past.Begins()},
	}, out)
}

func openRecording(path string) (*os.File, *recording.Reader, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	reader, err := recording.Open(file)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return file, reader, nil
}

// firstOf is the time of a recording's first message.
func firstOf(path string) (time.Time, error) {
	file, reader, err := openRecording(path)
	if err != nil {
		return time.Time{}, err
	}
	defer file.Close()
	for _, err := range reader.All() {
		if err != nil {
			return time.Time{}, fmt.Errorf("%s: %w", path, err)
		}
		if !reader.First().IsZero() {
			break
		}
	}
	return reader.First(), nil
}
