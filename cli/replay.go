package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/cli/internal/settings"
	"kubelot.dev/cli/internal/tap"
)

func replayCommand(stdout *os.File) *cobra.Command {
	var (
		lines   lineFlags
		options tap.ReplayOptions
		at      string
		check   bool
		with    string
	)
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Show a recording of kubelot tap again, or check it.",
		Long: `Shows the messages of a recording (kubelot tap --record, or bus/history.jsonl of kubelot bundle) as kubelot tap
did, at any speed and with any filters. In place of a message's age it shows how long after the first message it
was. It needs no node.

With --check it shows nothing of that. It feeds the recording to the functions that decide (what a pod's worker does
next, the pod's status, which containers are removed, ...), and shows where this version decides otherwise than was
recorded. What can't be judged, because it depends on what isn't on the bus, is counted. docs/replay.md says more.

Exit codes: 0 at the end of the recording or after Ctrl-C, 1 if the file is no recording, or a line of it is no
message; with --check 3 if this version decides otherwise.`,
		Example: `  kubelot replay shop.jsonl
  kubelot replay shop.jsonl --speed 10
  kubelot replay shop.jsonl --at 5m --error
  kubelot replay shop.jsonl --at 2026-11-20T12:00:00Z -o json
  kubelot replay shop.jsonl --check
  kubelot replay shop.jsonl --check -o json | jq .differences`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if check {
				return checkRecording(c, args[0], with, lines.output)
			}
			var err error
			if options.Filter, options.Format, err = lines.resolve(stdout); err != nil {
				return err
			}
			if options.At, options.AtTime, err = moment(at); err != nil {
				return err
			}
			if options.Speed < 0 || math.IsNaN(options.Speed) {
				return fmt.Errorf("--speed %v: want how many times faster than it was, or 0 for all at once", options.Speed)
			}
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			recording, err := tap.OpenRecording(file)
			if err == nil {
				err = tap.Replay(c.Context(), recording, options, stdout)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return nil
		},
	}
	lines.register(c)
	flags := c.Flags()
	flags.Float64Var(&options.Speed, "speed", 0, "how many times faster than it was: 1 takes as long, 0 shows all "+
		"at once")
	flags.StringVar(&at, "at", "", "begin this long after the first message, such as 5m, or at this time (RFC 3339)")
	flags.BoolVar(&check, "check", false, "show where this version decides otherwise than was recorded")
	flags.StringVar(&with, "with", "", "with --check: the executable kubelot-all whose decisions are compared (default: "+
		"the one in this executable's directory)")
	return c
}

// kubelotAll is the executable that has the functions that decide, and checkProgram its program that asks them.
const (
	kubelotAll   = "kubelot-all"
	checkProgram = "check"
)

// checkRecording runs the check, which needs the daemons' code and so isn't in this package.
func checkRecording(c *cobra.Command, file, with, output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("-o %q with --check: want -o text or json", output)
	}
	for _, flag := range []string{
		"pod", "namespace", "label", "topic", "daemon", "error", "slower-than", "speed", "at",
	} {
		if c.Flags().Changed(flag) {
			return fmt.Errorf("--%s: --check looks at the whole recording", flag)
		}
	}
	if with == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find %s: %w: name it with --with", kubelotAll, err)
		}
		with = filepath.Join(filepath.Dir(self), kubelotAll)
		if _, err := os.Stat(with); err != nil {
			return fmt.Errorf("the check needs the executable %s: %w: name one with --with", kubelotAll, err)
		}
	}
	cmd := exec.CommandContext(c.Context(), with, checkProgram, "--output="+output, file)
	// The name chooses the program, whatever the file is called.
	cmd.Args[0] = kubelotAll
	cmd.Stdout, cmd.Stderr = c.OutOrStdout(), c.ErrOrStderr()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err := cmd.Run()
	ended, is := errors.AsType[*exec.ExitError](err)
	switch {
	case is && ended.ExitCode() == exitDiffers:
		return exitError{errors.New("this version decides otherwise than was recorded"), exitDiffers}
	case is && context.Cause(c.Context()) == nil:
		return fmt.Errorf("the check failed: %w", err)
	}
	return err
}

// moment reads a duration or a time.
func moment(text string) (time.Duration, time.Time, error) {
	if text == "" {
		return 0, time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d, time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, t, fmt.Errorf("--at %q: want a duration such as 5m, or a time such as 2026-11-20T12:00:00Z", text)
	}
	return 0, t, nil
}

// decisive are the settings that decisions depend on and that aren't on the bus: those of podsync's crash back-off and
// of gc.
var decisive = []string{
	"crashLoopBackOff", "evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim",
	"evictionPressureTransitionPeriod", "evictionMaxPodGracePeriod", "enforceNodeAllocatable",
	"--maximum-dead-containers", "--maximum-dead-containers-per-container", "--minimum-container-ttl-duration",
}

// recordedSettings are the decisive settings of the daemons that run; none where that can't be said, as on another
// machine.
func recordedSettings(proc, runDir string) map[string]any {
	crew, err := settings.Crew(proc, runDir)
	if err != nil || len(crew) == 0 {
		return nil
	}
	found := map[string]any{}
	for _, s := range settings.Check(crew[0].Args).Settings {
		if slices.Contains(decisive, s.Name) {
			found[s.Name] = s.Value
		}
	}
	return found
}
