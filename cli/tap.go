package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/tap"
	"kubelot.dev/daemon"
)

// lineFlags say which messages tap and replay show, and how.
type lineFlags struct {
	filter   tap.Filter
	selector string
	output   string
	noColor  bool
}

func (f *lineFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.filter.Pod, "pod", "", "only this pod: namespace/name, name or UID")
	flags.StringVarP(&f.filter.Namespace, "namespace", "n", "", "only pods of this namespace")
	flags.StringVarP(&f.selector, "label", "l", "", "only pods with these labels: a selector such as app=web,tier!=db")
	flags.StringArrayVar(&f.filter.Topics, "topic", nil, "only this topic, or all that begin with it, such as "+
		"pod; may be repeated")
	flags.StringVar(&f.filter.Daemon, "daemon", "", "only what this daemon wrote")
	flags.BoolVar(&f.filter.Errors, "error", false, "only failures, warnings, and what can't be decoded")
	flags.DurationVar(&f.filter.SlowerThan, "slower-than", 0, "only steps of pods that took at least this long, such "+
		"as 2s")
	flags.StringVarP(&f.output, "output", "o", string(tap.Text), strings.Join(tap.Styles(), ", "))
	flags.BoolVar(&f.noColor, "no-color", false, "no colours, even on a terminal")
	complete(c, "topic", topicNames())
	complete(c, "output", tap.Styles())
}

// resolve reads the flags that have a form of their own.
func (f *lineFlags) resolve(stdout *os.File) (tap.Filter, tap.Format, error) {
	format := tap.Format{Style: tap.Style(f.output), Painter: paint.For(stdout, f.noColor)}
	if !slices.Contains(tap.Styles(), f.output) {
		return f.filter, format, fmt.Errorf("-o %q: want text, wide, short or json", f.output)
	}
	if f.filter.SlowerThan < 0 {
		return f.filter, format, fmt.Errorf("--slower-than %s: want a positive duration", f.filter.SlowerThan)
	}
	if f.selector == "" {
		return f.filter, format, nil
	}
	selector, err := labels.Parse(f.selector)
	if err != nil {
		return f.filter, format, fmt.Errorf("--label %q: want a selector such as app=web: %w", f.selector, err)
	}
	f.filter.Labels = selector
	return f.filter, format, nil
}

func tapCommand(stdout *os.File) *cobra.Command {
	var (
		busAt   busFlags
		lines   lineFlags
		options tap.Options
		record  string
		follow  bool
	)
	c := &cobra.Command{
		Use:   "tap",
		Short: "Show what the daemons say to each other, one line per message.",
		Long: `Shows the messages on the bus as they pass. With --since it begins with those that the bus still keeps. Filters
may be combined. -o text and wide name the steps of pods that have been open for long, and at the end all that have
begun and not ended. With --follow=false it ends where the history ends.

-o text has the time, the age, the topic, the pod, and what matters; wide has the date, the daemon and the key too;
short has the time, the pod, and what matters; json has the whole message.

--record also writes what is shown to a file, for kubelot replay and kubelot why --replay. With it goes what was said of
the node and before, and the settings that decisions depend on. Values of environment variables and the like are hidden.

Exit codes: 0 after Ctrl-C and at the end of the history, 1 if the bus can't be reached or the file can't be written.`,
		Example: `  kubelot tap --pod default/web-0 --since 5m
  kubelot tap --topic podsync.step --topic volume
  kubelot tap --label app=web --error --since 1h
  kubelot tap --slower-than 2s --since 1h -o wide
  kubelot tap --namespace shop --record shop.jsonl
  kubelot tap --daemon pleg -o json | jq .data
  kubelot tap --since 10m --error --follow=false`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if options.Once = !follow; options.Once && options.Since <= 0 {
				return errors.New("--follow=false shows the history only: say with --since how much of it")
			}
			showEnv := options.Format.ShowEnv
			if options.Filter, options.Format, err = lines.resolve(stdout); err != nil {
				return err
			}
			options.Format.ShowEnv = showEnv
			conn, err := busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			if record == "" {
				return tap.Run(c.Context(), conn.Transport(), options, stdout)
			}
			file, err := createNew(record)
			if err != nil {
				return err
			}
			options.Record, options.Version = file, daemon.Version()
			options.Settings = recordedSettings(procDir, busAt.runDir)
			return errors.Join(tap.Run(c.Context(), conn.Transport(), options, stdout), file.Close())
		},
	}
	busAt.register(c)
	lines.register(c)
	flags := c.Flags()
	flags.DurationVar(&options.Since, "since", 0, "start with the history of this duration, such as 5m")
	flags.BoolVar(&follow, "follow", true, "go on with what passes when the history has been shown")
	flags.StringVar(&record, "record", "", "also write what is shown to this new file, without secrets, for "+
		"kubelot replay")
	flags.BoolVar(&options.Format.ShowEnv, "show-env", false, "show values of environment variables in JSON (root only)")
	completePods(c, "pod", &busAt)
	return c
}

// createNew creates a file for what concerns nobody else.
func createNew(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s exists already: name a new file", path)
	}
	return file, err
}

// completePatience bounds how long a person waits after the tabulator key. Only tests change it.
var completePatience = time.Second

// completePods offers the node's pods to the shell's completion.
func completePods(c *cobra.Command, flag string, busAt *busFlags) {
	err := c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, _ string) ([]string,
		cobra.ShellCompDirective,
	) {
		return podNames(c.Context(), busAt), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		// The flag is registered by the caller; a test calls every command's constructor.
		panic(err)
	}
}

// podNames are the node's pods as namespace/name; none where the bus can't be asked.
func podNames(ctx context.Context, busAt *busFlags) []string {
	ctx, cancel := context.WithTimeout(ctx, completePatience)
	defer cancel()
	conn, err := busAt.connect(ctx)
	if err != nil {
		return nil
	}
	defer conn.Close()
	state, err := pods.Read(ctx, conn)
	if err != nil {
		return nil
	}
	var names []string
	for _, row := range pods.Build(state) {
		names = append(names, row.Namespace+"/"+row.Name)
	}
	return names
}
