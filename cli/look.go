package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/pods"
)

// complete offers fixed values to the shell's completion.
func complete(c *cobra.Command, flag string, values []string) {
	err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		// The flag is registered lines above; a test calls every command's constructor.
		panic(err)
	}
}

// writeJSON is how every command shows JSON.
func writeJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func topicNames() []string {
	var names []string
	for _, t := range topic.All() {
		names = append(names, t.Name())
	}
	return names
}

func podsCommand(stdout *os.File) *cobra.Command {
	var (
		busAt   busFlags
		output  string
		noColor bool
		wait    time.Duration
	)
	c := &cobra.Command{
		Use:   "pods",
		Short: "List the node's pods as the bus knows them.",
		Long: `Lists the pods with what their containers do, from what the daemons say to each other. With --wait it first waits
until all pods are ready or have ended.

Exit codes: 0 if there is a list; 1 if the bus can't be reached, or with --wait if the pods aren't ready in time.`,
		Example: `  kubelot pods
  kubelot pods --wait 2m
  kubelot pods -o json | jq '.[].name'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			conn, err := busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			rows, err := lookAtPods(c, conn, wait)
			if rows == nil && err != nil {
				return err
			}
			if printErr := printPods(stdout, rows, output, noColor); printErr != nil {
				return printErr
			}
			return err
		},
	}
	busAt.register(c)
	offerOutput(c, &output, "table")
	c.Flags().BoolVar(&noColor, "no-color", false, "no colours, even on a terminal")
	c.Flags().DurationVar(&wait, "wait", 0, "wait this long until all pods run, and fail if they don't")
	return c
}

func printPods(stdout *os.File, rows []pods.Row, output string, noColor bool) error {
	switch output {
	case "json":
		return writeJSON(stdout, rows)
	case "table":
		_, err := fmt.Fprint(stdout, pods.Table(rows, time.Now(), paint.For(stdout, noColor)))
		return err
	}
	return checkOutput(output, "table")
}
