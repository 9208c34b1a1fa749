package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"kubelot.dev/bus"
	"kubelot.dev/cli/internal/down"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/takeover"
	"kubelot.dev/cli/internal/up"
	"kubelot.dev/cri"
	"kubelot.dev/daemon/config"
)

// lookAtPods reads the pods once, or waits until all run.
func lookAtPods(c *cobra.Command, conn *bus.Conn, wait time.Duration) ([]pods.Row, error) {
	if wait > 0 {
		ctx, cancel := context.WithTimeout(c.Context(), wait)
		defer cancel()
		return pods.Wait(ctx, conn)
	}
	ctx, cancel := context.WithTimeout(c.Context(), busPatience)
	defer cancel()
	state, err := pods.Read(ctx, conn)
	if err != nil {
		return nil, err
	}
	return pods.Build(state), nil
}

// upOptions are the flags of kubelot up that are not the kubelet's.
type upOptions struct {
	config     config.Flags
	binDir     string
	compact    bool
	without    []string
	down       bool
	untilReady time.Duration
	showPods   bool
	noColor    bool
	profiling  bool
	// busy says that this process has something to do while the crew runs.
	busy bool
}

func upCommand(stdout, stderr *os.File) *cobra.Command {
	var o upOptions
	c := &cobra.Command{
		Use:   "up [kubelet flags]",
		Short: "Run the crew in the foreground, without systemd.",
		Long: `Runs the bus and every daemon as child processes, and restarts those that end.
Ctrl-C stops the crew and leaves the pods running; with --down it removes them. SIGHUP has the daemons read their
configuration again, as kubelot config reload does; if the terminal is gone it stops the crew.

Exit codes: 0 after Ctrl-C, or with --until-ready when all pods run; 1 if the crew can't be started, or not all pods run
in time.`,
		Example: `  kubelot up --config kubelet.yaml --kubeconfig node.kubeconfig
  kubelot up --config kubelet.yaml --pod-manifest-path ./manifests --show-pods --down`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context(), stdout, stderr) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.binDir, "bin-dir", "", "directory of the executables kubelot-<daemon> (default: this executable's)")
	flags.BoolVar(&o.compact, "compact", false, "run all daemons in one process, which takes less memory")
	flags.StringSliceVar(&o.without, "without", nil, "daemons to leave out; the node is Ready only with podsync, "+
		"pleg, volume, probe and status, and registered only with lease")
	flags.BoolVar(&o.down, "down", false, "remove all pods at the end")
	flags.BoolVar(&o.showPods, "show-pods", false, "print the table of pods once all of them run")
	flags.DurationVar(&o.untilReady, "until-ready", 0, "exit when all pods run; fail if they don't within this time")
	flags.BoolVar(&o.noColor, "no-color", false, "no colours, even on a terminal")
	flags.BoolVar(&o.profiling, "profiling", false, "serve pprof on the socket of each daemon's metrics")
	o.config.Register(flags)
	return c
}

func (o *upOptions) run(ctx context.Context, stdout, stderr *os.File) error {
	c, err := o.config.Load()
	if err != nil {
		return err
	}
	if o.binDir == "" {
		executable, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the daemons' executables: %w: name their directory with --bin-dir", err)
		}
		o.binDir = filepath.Dir(executable)
	}
	args := o.config.Args()
	if term.IsTerminal(int(stderr.Fd())) && !o.noColor {
		args = append(args, "--log-style=human")
	}
	if o.profiling {
		args = append(args, "--profiling")
	}
	options := up.Options{
		BinDir: o.binDir, Args: args, Compact: o.compact, Without: o.without, BusSocket: c.BusSocket, RunDir: c.RunDir,
		Colours: paint.For(stderr, o.noColor).On,
	}
	if !o.busy && !o.showPods && o.untilReady == 0 && !o.down {
		fmt.Fprintf(stderr, "kubelot: %v; the crew runs all the same, and takes 5 MiB more\n", up.Become(options))
	}
	started := false
	err = up.Serve(ctx, options, stderr, func(ctx context.Context) error {
		started = true
		return o.watch(ctx, c, stdout)
	})
	// A crew that didn't start has no pods: those that there are belong to another agent, which may be why it didn't.
	if o.down && started {
		fmt.Fprintln(stderr, "kubelot: removing all pods")
		// The crew was told to stop by the same signal; the pods still have to go.
		err = errors.Join(err, removeAll(context.WithoutCancel(ctx), c, defaultGrace, stderr))
	}
	return err
}

// watch runs next to the crew. It waits until all pods run, if the options say so, and until ctx ends.
func (o *upOptions) watch(ctx context.Context, c *config.Config, stdout *os.File) error {
	if o.showPods || o.untilReady > 0 {
		err := o.awaitPods(ctx, c, stdout)
		if o.untilReady > 0 {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

func (o *upOptions) awaitPods(ctx context.Context, c *config.Config, stdout *os.File) error {
	if o.untilReady > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.untilReady)
		defer cancel()
	}
	conn, err := (&busFlags{runDir: c.RunDir}).dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	rows, err := pods.Wait(ctx, conn)
	if err != nil && ctx.Err() != nil && o.untilReady == 0 {
		return nil
	}
	return errors.Join(err, printPods(stdout, rows, "table", o.noColor))
}

// defaultGrace is how long containers may take to end when all pods are removed.
const defaultGrace = 5 * time.Second

func downCommand(stdout *os.File) *cobra.Command {
	var (
		flags config.Flags
		grace time.Duration
	)
	c := &cobra.Command{
		Use:   "down [kubelet flags]",
		Short: "Remove all pods of this node: containers, mounts, cgroups, directories, logs.",
		Long: `Stops and removes every pod sandbox that carries the kubelet's labels, and what pods left on this node.
The API server isn't informed: use it on standalone nodes, or to clean up. Neither the crew nor a kubelet with the same
root directory may be running.

Exit codes: 0 if nothing of the pods is left, 1 if something is, or the crew or the kubelet runs.`,
		Example: "  kubelot down --config kubelet.yaml --grace 30s",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			resolved, err := flags.Load()
			if err != nil {
				return err
			}
			if err := up.NotRunning(c.Context(), resolved.BusSocket); err != nil {
				return err
			}
			return removeAll(c.Context(), resolved, grace, stdout)
		},
	}
	c.Flags().SortFlags = false
	c.Flags().DurationVar(&grace, "grace", defaultGrace, "how long containers may take to end")
	flags.Register(c.Flags())
	return c
}

// removeAll removes every pod of the configured node.
func removeAll(ctx context.Context, c *config.Config, grace time.Duration, out io.Writer) error {
	kubelet, err := takeover.Kubelet(c.RootDir)
	if err != nil {
		return err
	}
	if kubelet.PID != 0 {
		return fmt.Errorf("no pod was removed: a kubelet (process %d) runs with the root directory %s: stop it first",
			kubelet.PID, c.RootDir)
	}
	cgroups, err := down.CgroupPaths(c.Kubelet.CgroupRoot)
	if err != nil {
		return err
	}
	client, err := cri.Dial(c.RuntimeEndpoint, cri.Options{Timeout: c.Kubelet.RuntimeRequestTimeout.Duration})
	if err != nil {
		return err
	}
	err = down.Run(ctx, down.Options{
		Runtime: client, RootDir: c.RootDir, PodLogsDir: c.PodLogsDir, ContainerLogsDir: c.ContainerLogsDir,
		Cgroups: cgroups, BusStore: filepath.Join(c.RunDir, "bus"), Grace: grace, Out: out,
	})
	return errors.Join(err, client.Close())
}
