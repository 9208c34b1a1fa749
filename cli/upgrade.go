package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/cli/internal/upgrade"
)

func upgradeCommand(stdout *os.File) *cobra.Command {
	var (
		busAt  busFlags
		o      upgrade.Options
		output string
	)
	c := &cobra.Command{
		Use:   "upgrade VERSION [daemon...]",
		Short: "Move the daemons to another version, one after the other, while the pods run.",
		Long: `Moves the links of the daemons to the executables of an installed version and restarts one daemon after the
other, with systemd or with kubelot up. A daemon is moved when the one before it is healthy. A daemon that
isn't healthy in time is moved back, and the upgrade ends there. It goes on if the terminal is closed.

On a node of packages it moves nothing, and says the commands of apt or dnf that move one daemon after the other.

VERSION is the name of an installed version (v0.2.0), or the path of a directory with its executables. To go back,
name the older version.

With -o json it prints at the end what has become of each daemon: moved, started, stopped, unchanged, link (it
doesn't run, and its link was moved), or back (it wasn't healthy). An upgrade that ended early says why in "error".

Exit codes: 0 if all daemons are of the version and healthy, or with --dry-run could be moved; 1 if nothing was moved,
or an unhealthy daemon was moved back.`,
		Example: `  kubelot upgrade v0.2.0
  kubelot upgrade v0.2.0 pleg volume
  kubelot upgrade /usr/lib/kubelot/v0.1.0
  kubelot upgrade v0.2.0 --dry-run -o json | jq -r '.steps[] | .daemon + " " + .outcome'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			defer outlive()()
			if err := checkOutput(output, "text"); err != nil {
				return err
			}
			conn, err := busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			o.To, o.Daemons, o.Bus, o.Out = args[0], args[1:], conn, stdout
			if o.BinDir, err = filepath.Abs(o.BinDir); err != nil {
				return err
			}
			// Where tools/install.sh puts it: <prefix>/lib/kubelot/bin and <prefix>/bin/kubelot.
			o.Command = filepath.Join(o.BinDir, "..", "..", "..", "bin", "kubelot")
			if output == "json" {
				o.Out = io.Discard
			}
			report, err := upgrade.Run(c.Context(), o)
			if output == "json" {
				err = errors.Join(err, writeJSON(stdout, report))
			}
			return err
		},
	}
	busAt.register(c)
	flags := c.Flags()
	flags.StringVar(&o.BinDir, "bin-dir", "/usr/lib/kubelot/bin", "directory of the links kubelot-<daemon>")
	flags.DurationVar(&o.Patience, "patience", time.Minute, "how long a daemon may take until it is healthy")
	flags.DurationVar(&o.Settle, "settle", 3*time.Second, "how long it must stay healthy before the next one is moved")
	flags.BoolVar(&o.DryRun, "dry-run", false, "only print what would be moved")
	offerOutput(c, &output, "text")
	return c
}
