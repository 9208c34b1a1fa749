package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/settings"
	"kubelot.dev/cli/internal/takeover"
	"kubelot.dev/daemon/config"
)

// procDir is where the kernel shows its processes.
const procDir = "/proc"

func configCommand(stdout *os.File) *cobra.Command {
	c := &cobra.Command{
		Use:     "config",
		Short:   "Look at the node's configuration, and have the daemons read it again.",
		Example: "  kubelot config check --config /var/lib/kubelet/config.yaml\n  kubelot config reload",
	}
	c.AddCommand(configCheck(stdout), configReload(stdout))
	return c
}

// checkOptions are the flags of kubelot config check that are not the kubelet's.
type checkOptions struct {
	config             config.Flags
	output             string
	all, same, noColor bool
}

func configCheck(stdout *os.File) *cobra.Command {
	var o checkOptions
	c := &cobra.Command{
		Use:   "check [kubelet flags]",
		Short: "Show what each field and flag of a kubelet's configuration does here, and what has no effect.",
		Long: `Reads a configuration as the daemons do, and shows for each setting what kubelot does with it:

  ok       what the kubelet does
  partly   a part of it; the line below names what is missing
  later    nothing yet
  moot     nothing, because there is nothing to act on; the line below says why
  unknown  no field has this name

Without flags it is the configuration of the daemons that run or, where none do, the one that their units name.
Where daemons run, the command also shows what differs from theirs: flags that aren't given are those of the
daemons. What the daemons run with is read from their command lines and files. Daemons that run with other values
than their files have now are named; kubelot config reload has them read the files again.

Exit codes: 0 if all settings do what they say, 1 if no daemon starts with this configuration or the command
failed, 2 if settings have no effect or a part of it only, 3 with --require-same if the daemons run with another
configuration.`,
		Example: `  kubelot config check
  kubelot config check --config /var/lib/kubelet/config.yaml
  kubelot config check --all
  kubelot config check -o json | jq '.settings[] | select(.problem)'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(o.output, "text"); err != nil {
				return err
			}
			report, err := o.report(c.Context(), procDir)
			if err != nil {
				return err
			}
			if o.output == "json" {
				err = writeJSON(stdout, report)
			} else {
				_, err = fmt.Fprint(stdout, settings.Text(report, o.all, paint.For(stdout, o.noColor)))
			}
			return errors.Join(err, o.verdict(report))
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if _, unknown := errors.AsType[*pflag.NotExistError](err); unknown {
			return fmt.Errorf("%w: kubelot has no such flag, and no daemon starts with it", err)
		}
		return err
	})
	flags := c.Flags()
	flags.SortFlags = false
	flags.BoolVar(&o.all, "all", false, "also show what isn't set")
	flags.BoolVar(&o.same, "require-same", false, "fail unless the daemons run with this configuration")
	offerOutput(c, &o.output, "text")
	flags.BoolVar(&o.noColor, "no-color", false, "no colours, even on a terminal")
	o.config.Register(flags)
	return c
}

// report looks at the configuration that is meant, and at the daemons that run.
func (o *checkOptions) report(ctx context.Context, proc string) (settings.Report, error) {
	crew, err := settings.Crew(proc, o.config.RunDir)
	if err != nil {
		return settings.Report{}, err
	}
	given := slices.DeleteFunc(o.config.Args(), func(arg string) bool { return strings.HasPrefix(arg, "--run-dir=") })
	args, from := given, "as given"
	if len(given) == 0 {
		if args, from, err = ownFlags(crew, o.config.RunDir); err != nil {
			return settings.Report{}, err
		}
	}
	report := settings.Check(args)
	report.From, report.Running = from, settings.Compare(given, crew)
	report.Running.AskStale(ctx, crew, o.config.RunDir)
	return report, nil
}

// ownFlags are the flags of the daemons that run or, where none do, those that the units name.
func ownFlags(crew []settings.Daemon, runDir string) (args []string, from string, err error) {
	if len(crew) > 0 {
		return crew[0].Args, "of the daemons that run", nil
	}
	for _, path := range []string{filepath.Join(runDir, "kubelet.env"), takeover.FlagsFile, defaultFlags} {
		args, err := settings.FlagsOf(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return args, "flags in " + path, err
	}
	return nil, "", fmt.Errorf("no daemon runs with the run directory %s, and there is no %s: name the configuration "+
		"with --config", runDir, defaultFlags)
}

// verdict is what the exit code says.
func (o *checkOptions) verdict(r settings.Report) error {
	switch problems := r.Problems(); {
	case r.Error != "":
		return errors.New("no daemon starts with this configuration")
	case problems == 1:
		return exitError{errors.New("one setting doesn't do what it says"), exitProblems}
	case problems > 1:
		return exitError{fmt.Errorf("%d settings don't do what they say", problems), exitProblems}
	case o.same && r.Running == nil:
		return exitError{errors.New("no daemon runs"), exitDiffers}
	case o.same && !r.Running.Same():
		return exitError{errors.New("the daemons run with another configuration"), exitDiffers}
	}
	return nil
}
