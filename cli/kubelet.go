package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kubelot.dev/cli/internal/handover"
	"kubelot.dev/cli/internal/takeover"
	"kubelot.dev/daemon/config"
)

// KubernetesVersion is the version of the kubelet whose work kubelot does, as kubeadm asks for it.
const KubernetesVersion = "v1.36.3"

// kubeletName is the name under which the command line is the kubelet.
const kubeletName = "kubelet"

// kubeletCommand is /usr/bin/kubelet: for kubeadm, which asks for its version, for units that start the kubelet with
// its flags, and for people.
func kubeletCommand(stdout, stderr *os.File) *cobra.Command {
	var flags config.Flags
	c := &cobra.Command{
		Use:   "kubelet [kubelet flags]",
		Short: "Run kubelot's daemons with the kubelet's flags.",
		Long: `This is kubelot in the kubelet's place. When kubelet.service runs it, it passes its flags on to kubelot's
daemons. Each daemon is a unit of its own: see systemctl status 'kubelot-*'. Otherwise it runs the daemons in
the foreground, as kubelot up does.

Exit codes: 0 when it is told to stop, 1 if the flags can't be used, or the crew can't be started.`,
		Example: `  kubelet --version
  systemctl restart kubelet
  kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf`,
		Version:           KubernetesVersion,
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(c *cobra.Command, _ []string) error {
			// Errors are reported here once, and not by each daemon.
			if _, err := flags.Load(); err != nil {
				return err
			}
			file := os.Getenv(handover.Variable)
			if file != "" {
				if err := takeover.MakeReadable(c.Context(), flags.ConfigFile, flags.ConfigDir); err != nil {
					return err
				}
				return handover.Do(c.Context(), file, flags.Args(), stdout)
			}
			fmt.Fprintln(stderr, "kubelet: this is kubelot; its daemons run in the foreground (kubelot up). To run them "+
				"as services, run systemctl start kubelet, with the flags in KUBELET_EXTRA_ARGS in /etc/default/kubelet")
			return (&upOptions{config: flags}).run(c.Context(), stdout, stderr)
		},
	}
	c.SetVersionTemplate("Kubernetes {{.Version}}\n")
	c.SetOut(stdout)
	c.SetErr(stderr)
	c.Flags().SortFlags = false
	flags.Register(c.Flags())
	return c
}
