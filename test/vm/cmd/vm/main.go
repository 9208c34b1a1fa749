// Command vm runs a Kubernetes node in a virtual machine for people, until it is interrupted.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kubelot.dev/test/testbed/program"
	"kubelot.dev/test/vm/guest"
)

func main() { program.Main(newCommand()) }

func newCommand() *cobra.Command {
	var opts guest.Options
	var install, runtime string
	cmd := &cobra.Command{
		Use:           "vm",
		Short:         "Run Debian 12 with systemd and kubelot in a virtual machine, joined to a control plane on this host",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.Out, opts.Runtime = os.Stderr, guest.Runtime(runtime)
			var err error
			if opts.Install, err = guest.From(install, ""); err != nil {
				return err
			}
			return serve(cmd, opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Dir, "dir", "", "directory of the machine and the control plane")
	flags.StringVar(&install, "install", "", "directory with deb packages, or with executables (tools/build.sh)")
	flags.StringVar(&runtime, "runtime", string(guest.Containerd), "container runtime: "+string(guest.Containerd)+" or "+
		string(guest.DebianContainerd))
	for _, name := range []string{"dir", "install"} {
		_ = cmd.MarkFlagRequired(name) // it fails for an undefined flag only
	}
	return cmd
}

func serve(cmd *cobra.Command, opts guest.Options) (err error) {
	g, err := guest.Start(cmd.Context(), opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Stop()) }()
	fmt.Fprintf(os.Stdout, "Ready. For another terminal:\n  export PATH=%s:$PATH KUBECONFIG=%s\n"+
		"  kubectl get nodes,pods -A\n  %s\nCtrl-C ends the machine and removes all but the logs.\n",
		g.Tools.Bin, g.Kubeconfig(), g.Machine.SSH())
	<-cmd.Context().Done()
	return nil
}
