package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/cli/internal/live/feed"
	"kubelot.dev/cli/internal/ui"
)

// pageHistory is how much of the bus's history the page shows; the bus keeps at most as much.
const pageHistory = 24 * time.Hour

// uiOpened is what -o json prints.
type uiOpened struct {
	URL  string    `json:"url"`
	Ends time.Time `json:"ends,omitzero"`
}

func uiCommand(stdout *os.File) *cobra.Command {
	var (
		busAt  busFlags
		output string
		port   uint16
		length time.Duration
	)
	c := &cobra.Command{
		Use:   "ui",
		Short: "Serve a live page of the node on loopback, for one browser.",
		Long: `Serves a page on 127.0.0.1 until Ctrl-C, or for as long as --for says: the crew at work with its messages as
moving arrows, how each pod has started and what it waits for, and what has happened on the node. It prints the
address, which opens the page once, in one browser. The page only reads, and loads nothing from anywhere else.

To see it on another machine, choose a port, make a tunnel there (ssh -L 8900:127.0.0.1:8900 NODE), and open the
address there.

Exit codes: 0 after Ctrl-C or when the time is over, 1 if there is no crew or the port is taken.`,
		Example: `  kubelot ui
  kubelot ui --port 8900 --for 30m
  kubelot ui -o json | jq -r .url`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text"); err != nil {
				return err
			}
			if length < 0 {
				return fmt.Errorf("--for %s: want a positive duration, or 0 for no end", length)
			}
			ctx, cancel := context.WithCancel(c.Context())
			defer cancel()
			var ends time.Time
			if length > 0 {
				ends = time.Now().Add(length)
				ctx, cancel = context.WithDeadline(ctx, ends)
				defer cancel()
			}
			// A bus that is away is something to see, so this doesn't wait for it.
			conn, err := busAt.dial(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
			if err != nil {
				return err
			}
			defer listener.Close()
			follows := feed.Node(ctx, conn, feed.Options{
				RunDir: busAt.runDir, Since: pageHistory, Every: processesEvery,
			})
			defer drain(cancel, follows)
			page := ui.New(follows)
			if err := sayOpened(stdout, output, uiOpened{URL: page.URL(listener.Addr()), Ends: ends}); err != nil {
				return err
			}
			return page.Serve(ctx, listener)
		},
	}
	busAt.register(c)
	offerOutput(c, &output, "text")
	c.Flags().Uint16Var(&port, "port", 0, "the port to listen on; 0 takes a free one")
	c.Flags().DurationVar(&length, "for", 30*time.Minute, "how long the page is served; 0 serves it until Ctrl-C")
	return c
}

// processesEvery is the pause between two readings of the daemons' processes.
const processesEvery = 2 * time.Second

func sayOpened(stdout *os.File, output string, o uiOpened) error {
	if output == "json" {
		return writeJSON(stdout, o)
	}
	until := "until Ctrl-C"
	if !o.Ends.IsZero() {
		until = "until Ctrl-C, or " + o.Ends.Format("15:04")
	}
	return say(stdout, fmt.Sprintf("%s\nThe address opens the page once, in one browser. It is served %s.", o.URL, until))
}
