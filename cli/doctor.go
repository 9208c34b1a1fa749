package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/cli/internal/health"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/settings"
	"kubelot.dev/cli/internal/words"
	"kubelot.dev/daemon/config"
)

// doctorCodes are the exit codes of findings that are bad, by their kind.
var doctorCodes = map[health.Kind]int{
	health.Machine: exitMachine, health.Runtime: exitRuntime, health.Bus: exitBus, health.Daemon: exitDaemon,
	health.Degraded: exitDegraded,
}

// doctorOptions are the flags of kubelot doctor that are not the kubelet's.
type doctorOptions struct {
	config  config.Flags
	output  string
	noColor bool
}

func doctorCommand(stdout *os.File) *cobra.Command {
	var o doctorOptions
	c := &cobra.Command{
		Use:   "doctor [kubelet flags]",
		Short: "Check what the crew needs on this node, and the health of each daemon.",
		Long: `Checks the machine, the container runtime, the bus and each daemon. A finding that is BAD comes with its cause
and with what to do about it. Without flags the checks are made with the configuration of the daemons that run or,
where none do, with the one that their units name. The command changes nothing.

Exit codes: 0 if all is well; else the lowest of all findings, because what comes first may be the cause of the rest.

  0  all is well
  1  the command failed: a wrong flag, or a configuration with which no daemon starts
  2  machine: it lacks something that the crew needs, or the command isn't run as root
  3  runtime: the container runtime doesn't answer, or isn't ready
  4  bus: the crew doesn't run, or its bus doesn't answer
  5  daemon: a daemon doesn't run, or can't do its job
  6  degraded: a daemon does only a part of its job`,
		Example: `  kubelot doctor
  kubelot doctor --config /var/lib/kubelet/config.yaml
  kubelot doctor -o json | jq '.findings[] | select(.ok | not)'
  kubelot doctor >/dev/null; [ $? -ne 3 ] || systemctl restart containerd`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(o.output, "text"); err != nil {
				return err
			}
			resolved, err := o.resolve(procDir)
			if err != nil {
				return err
			}
			findings := examine(c.Context(), resolved)
			verdict := diagnosis(findings)
			if o.output == "json" {
				err = writeJSON(stdout, doctorReport{OK: verdict == nil, Code: exitCode(verdict), Findings: findings})
			} else {
				_, err = fmt.Fprint(stdout, health.Text(findings, paint.For(stdout, o.noColor)))
			}
			return errors.Join(err, verdict)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	offerOutput(c, &o.output, "text")
	flags.BoolVar(&o.noColor, "no-color", false, "no colours, even on a terminal")
	o.config.Register(flags)
	return c
}

// doctorReport is the answer as JSON.
type doctorReport struct {
	OK       bool             `json:"ok"`
	Code     int              `json:"exitCode"`
	Findings []health.Finding `json:"findings"`
}

// resolve is the configuration that is meant: the given one or, without any, that of the daemons.
func (o *doctorOptions) resolve(proc string) (*config.Config, error) {
	runDir := "--run-dir=" + o.config.RunDir
	given := slices.DeleteFunc(o.config.Args(), func(arg string) bool { return arg == runDir })
	if len(given) > 0 {
		return o.config.Load()
	}
	crew, err := settings.Crew(proc, o.config.RunDir)
	if err != nil {
		return nil, err
	}
	args, from, err := ownFlags(crew, o.config.RunDir)
	if err != nil {
		// Nothing runs and nothing is installed: the defaults, with which `kubelot up` would run.
		return o.config.Load()
	}
	_, resolved, err := parsed(append(slices.Clone(args), runDir))
	if err != nil {
		return nil, fmt.Errorf("the configuration (%s): %w: see kubelot config check", from, err)
	}
	return resolved, nil
}

// diagnosis is what the exit code says; nil where all is well.
func diagnosis(findings []health.Finding) error {
	counts, total := health.Tally(findings), 0
	parts := make([]string, 0, len(counts))
	for _, c := range counts {
		total += c.Bad
		parts = append(parts, fmt.Sprintf("%s (%d)", c.Kind, c.Bad))
	}
	if total == 0 {
		return nil
	}
	return exitError{
		fmt.Errorf("%s failed: %s", words.Plural(total, "check"), strings.Join(parts, ", ")),
		doctorCodes[counts[0].Kind],
	}
}

// report draws the findings without colours, for a file.
func report(findings []health.Finding) string { return health.Text(findings, paint.Painter{}) }

// examine makes all checks.
func examine(ctx context.Context, c *config.Config) []health.Finding {
	findings := []health.Finding{checkRoot(), checkCgroups(c), checkTools(), checkRuntime(ctx, c)}
	return append(findings, checkCrew(ctx, c, time.Now())...)
}
