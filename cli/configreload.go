package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/settings"
	"kubelot.dev/daemon/config"
)

func configReload(stdout *os.File) *cobra.Command {
	var (
		runDir, output string
		noColor        bool
	)
	c := &cobra.Command{
		Use:   "reload",
		Short: "Have the daemons read their configuration again, and show what they have taken.",
		Long: `Has each daemon that runs read its configuration again (the file, the drop-ins, and the flags that it was
started with), as systemctl reload does, and shows for each changed field:

  taken    which daemons act by it from now on
  restart  which daemons take it at their next start only
  moot     it concerns no daemon that runs

A wrong configuration changes nothing. Until it is corrected and read again, the daemons' health says so. The log's
verbosity, eviction thresholds, the collection of images, the limits of containers' logs, and the rate of pulls are
taken without a restart. What needs a restart is told again each time, until the daemons have been restarted.

Exit codes: 0 if everything that has changed is taken, 1 if a daemon has taken nothing because of an error, 2 if
daemons must be restarted.`,
		Example: `  kubelot config reload
  kubelot config reload -o json | jq -r '.fields[] | select(.restart) | .name'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text"); err != nil {
				return err
			}
			report, err := reloadCrew(c.Context(), runDir)
			if err != nil {
				return err
			}
			if output == "json" {
				err = writeJSON(stdout, report)
			} else {
				_, err = fmt.Fprint(stdout, settings.ReloadText(report, paint.For(stdout, noColor)))
			}
			return errors.Join(err, reloadVerdict(report))
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&runDir, "run-dir", config.RunDir, "directory with kubelot's sockets and keys")
	offerOutput(c, &output, "text")
	flags.BoolVar(&noColor, "no-color", false, "no colours, even on a terminal")
	return c
}

func reloadCrew(ctx context.Context, runDir string) (settings.Reload, error) {
	crew, err := settings.Crew(procDir, runDir)
	if err != nil {
		return settings.Reload{}, err
	}
	if len(crew) == 0 {
		return settings.Reload{}, fmt.Errorf("no daemon runs with the run directory %s: name it with --run-dir", runDir)
	}
	return settings.ReloadCrew(ctx, crew, runDir), nil
}

// reloadVerdict is what the exit code says.
func reloadVerdict(r settings.Reload) error {
	if failed := r.Failed(); len(failed) > 0 {
		return fmt.Errorf("nothing has changed in %s", strings.Join(failed, ", "))
	}
	if len(r.Units) > 0 {
		return exitError{errors.New("some of it is taken at the daemons' next start only"), exitProblems}
	}
	return nil
}
