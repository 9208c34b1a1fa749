package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kubelot.dev/cli/internal/install"
	"kubelot.dev/daemon"
)

func installCommand(out io.Writer) *cobra.Command {
	o := install.Options{Out: out, Version: daemon.Version()}
	var compact, kubelet bool
	c := &cobra.Command{
		Use:   "install [daemon...]",
		Short: "Install this version with its systemd units, on a machine without kubelot's packages.",
		Long: `Copies the executables in this executable's directory into a directory for their version, makes one link per
daemon, and installs the systemd units. Daemons that run keep their version until kubelot upgrade moves them. With
names of daemons, only these are installed. The command starts and restarts nothing, and changes no pod.

What --compact and --kubelet have brought stays with a newer version, also without them: --compact=false and
--kubelet=false take it away.

Exit codes: 0 if all files are in place, 1 if not.`,
		Example: `  kubelot install
  kubelot install --kubelet
  kubelot install lease
  kubelot install --compact --destdir /mnt/image`,
		RunE: func(c *cobra.Command, args []string) error {
			o.Daemons = args
			if err := locate(&o); err != nil {
				return err
			}
			if c.Flags().Changed("compact") {
				o.Compact = &compact
			}
			if c.Flags().Changed("kubelet") {
				o.Kubelet = &kubelet
			}
			installed, err := install.Install(c.Context(), o)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(out, nextSteps(o, installed))
			return err
		},
	}
	flags := c.Flags()
	placeFlags(c, &o)
	flags.BoolVar(&compact, "compact", false, "install the unit that runs all daemons in one process")
	flags.BoolVar(&kubelet, "kubelet", false, "install kubelet.service and the program kubelet, for kubeadm")
	return c
}

func uninstallCommand(out io.Writer) *cobra.Command {
	o := install.Options{Out: out}
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove what kubelot install has installed; pods go on running.",
		Long: `Stops and disables kubelot's units and removes its files. Pods go on running: another node agent can take them
over. To remove them too, stop the crew and run kubelot down first. --purge also removes the file that the
administrator may have changed (/etc/default/kubelot), and the state in /run/kubelot.

Exit codes: 0 if all is removed, 1 if not.`,
		Example: `  kubelot uninstall
  systemctl stop kubelot.target && kubelot down && kubelot uninstall --purge`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := locate(&o); err != nil {
				return err
			}
			return install.Uninstall(c.Context(), o)
		},
	}
	placeFlags(c, &o)
	c.Flags().BoolVar(&o.Purge, "purge", false, "also remove changed files and the daemons' state")
	return c
}

// defaultPrefix is where packages have kubelot, too.
const defaultPrefix = "/usr"

func placeFlags(c *cobra.Command, o *install.Options) {
	c.Flags().StringVar(
		&o.Prefix,
		"prefix",
		defaultPrefix,
		"where kubelot is installed; systemd reads units below /usr and /usr/local",
	)
	c.Flags().StringVar(&o.Dest, "destdir", "", "root directory of the machine to install on, such as a mounted image")
}

// locate finds the executables in the directory of this one.
func locate(o *install.Options) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the executables: %w", err)
	}
	o.From = filepath.Dir(executable)
	if !filepath.IsAbs(o.Prefix) {
		return fmt.Errorf("--prefix %q: want an absolute path", o.Prefix)
	}
	o.Prefix = filepath.Clean(o.Prefix)
	return nil
}

// removedPackage is there where kubelot-common was removed with apt and not purged.
const removedPackage = "/var/lib/dpkg/info/kubelot-common.postrm"

// nextSteps says what the administrator does next.
func nextSteps(o install.Options, installed install.Installed) string {
	kept := installed.Kept
	var text strings.Builder
	line := func(what, how string) { fmt.Fprintf(&text, "  %-32s %s\n", what, how) }
	text.WriteString("Installed. Next:\n")
	if _, err := os.Stat(filepath.Join(o.Dest, removedPackage)); err == nil {
		line("keep /etc/default/kubelot:", "copy it, and put it back after apt-get purge kubelot-common, which takes it away")
	}
	switch {
	case len(kept) > 0:
		command := "kubelot upgrade " + o.Version
		if len(o.Daemons) > 0 {
			command += " " + strings.Join(kept, " ")
		}
		if o.Prefix != defaultPrefix {
			command += " --bin-dir=" + filepath.Join(o.Prefix, "lib/kubelot/bin")
		}
		line("run this version:", command+"   (one by one, at any time: pods go on)")
	case len(o.Daemons) > 0:
		units := "kubelot-" + strings.Join(o.Daemons, " kubelot-")
		line("run this version:", "systemctl restart "+units+"   (at any time: pods go on)")
	case installed.Kubelet:
		line("now and at boot:", "systemctl enable kubelet; kubeadm init or kubeadm join starts it")
	default:
		line("flags and configuration file:", "/etc/default/kubelot")
		line("start, now and at boot:", "systemctl enable --now kubelot.target")
	}
	return text.String()
}
