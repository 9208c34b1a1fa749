package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/test/bench/agent"
	"kubelot.dev/test/bench/floor"
	"kubelot.dev/test/bench/hollow"
	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/harness/cluster"
	"kubelot.dev/test/harness/images"
	"kubelot.dev/test/harness/node"
)

// options of both commands.
type options struct {
	pods   int
	repeat int
	json   string

	// floor only
	socket string
	floor  floor.Options

	// with agents only
	agents []string
	dir    string
	idle   time.Duration
	noCRI  bool
	probe  time.Duration
}

func newCommand() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:           "bench",
		Short:         "Measure the bare CRI calls and node agents in one run, against a control plane of their own",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), &o) },
	}
	o.register(root)
	root.Flags().StringSliceVar(&o.agents, "agent", []string{"kubelot"}, "agents to measure, one after the other: kubelot, kubelet")
	root.Flags().StringVar(&o.dir, "dir", "", "directory of the test bed, whose logs stay (default: a temporary one)")
	root.Flags().DurationVar(&o.idle, "idle", 30*time.Second, "how long the idle agent is measured")
	root.Flags().DurationVar(&o.probe, "exec-probe", 0, "give every pod an exec readiness probe with this period, in whole seconds")
	root.Flags().BoolVar(&o.noCRI, "no-floor", false, "leave out the bare CRI calls")
	root.AddCommand(floorCommand())
	return root
}

func floorCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "floor",
		Short: "Measure the bare CRI calls on a running container runtime",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := measureFloor(cmd.Context(), &o)
			if err != nil {
				return err
			}
			return report(&o, []measure.Result{result})
		},
	}
	o.register(cmd)
	cmd.Flags().StringVar(&o.socket, "socket", "/run/containerd/containerd.sock", "CRI socket")
	cmd.Flags().StringVar(&o.floor.Image, "image", images.PauseRef, "image that is there and ends at once on SIGTERM")
	cmd.Flags().StringVar(&o.floor.CgroupParent, "cgroup-parent", "/kubelot-floor", "parent of the pods' cgroups")
	cmd.Flags().StringVar(&o.floor.LogDir, "log-dir", "/tmp/kubelot-floor-logs", "directory of the pods' logs")
	return cmd
}

func (o *options) register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&o.pods, "pods", 100, "pods at once")
	cmd.Flags().IntVar(&o.repeat, "repeat", 11, "single pods")
	cmd.Flags().StringVar(&o.json, "json", "", "file for all samples")
}

func measureFloor(ctx context.Context, o *options) (measure.Result, error) {
	client, err := floor.Dial(o.socket, o.floor)
	if err != nil {
		return measure.Result{}, err
	}
	defer client.Close()
	return client.Run(ctx, o.repeat, o.pods)
}

func run(ctx context.Context, o *options) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{Dir: o.dir, Out: os.Stderr, ControlPlane: true})
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := c.Stop(); err == nil {
			err = stopErr
		}
	}()
	var results []measure.Result
	if !o.noCRI {
		o.socket = c.Containerd.Socket
		o.floor = floor.Options{Image: images.PauseRef, CgroupParent: c.Bed.CgroupRoot, LogDir: c.Bed.Path("floorlogs")}
		result, err := measureFloor(ctx, o)
		if err != nil {
			return err
		}
		results = append(results, result)
		result, err = measureHollow(ctx, o, c, result.Starts.Parallel)
		if err != nil {
			return fmt.Errorf("measure the hollow agent: %w", err)
		}
		results = append(results, result)
	}
	for _, name := range o.agents {
		result, err := measureAgent(ctx, o, c, node.Agent(name))
		if err != nil {
			return fmt.Errorf("measure %s: %w", name, err)
		}
		results = append(results, result)
	}
	return report(o, results)
}

// measureHollow runs the hollow agent within this process, as many pods at a time as were best for the bare calls.
func measureHollow(ctx context.Context, o *options, c *cluster.Cluster, parallel int) (measure.Result, error) {
	client, err := floor.Dial(o.socket, o.floor)
	if err != nil {
		return measure.Result{}, err
	}
	defer client.Close()
	const node = "bench-hollow"
	h := hollow.Agent{Client: c.ControlPlane.Client(), Runtime: client, Node: node, Parallel: parallel}
	hollowCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- h.Run(hollowCtx) }()
	result, err := agent.Run(ctx, c.ControlPlane.Client(), agent.Options{
		Subject: "hollow", Node: node, Image: images.PauseRef, PID: os.Getpid(), Repeat: o.repeat, Pods: o.pods,
	})
	stop()
	result.Usage = nil // it would be the benchmark's own
	return result, errors.Join(err, <-ended)
}

// measureAgent runs each agent as a node of its own, so that none meets what
// another left in the API.
func measureAgent(ctx context.Context, o *options, c *cluster.Cluster, name node.Agent) (result measure.Result, err error) {
	n, err := node.Start(ctx, c, node.Options{Agent: name, Name: "bench-" + string(name)})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, n.Remove()) }()
	image := images.PauseRef
	if o.probe > 0 {
		image = images.BusyboxRef
	}
	return agent.Run(ctx, c.ControlPlane.Client(), agent.Options{
		Subject: string(name), Node: n.Name, Image: image, PID: n.PID(),
		Repeat: o.repeat, Pods: o.pods, Idle: o.idle, ExecProbe: o.probe,
	})
}

func report(o *options, results []measure.Result) error {
	if o.json != "" {
		file, err := os.Create(o.json)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := measure.JSON(file, results); err != nil {
			return err
		}
	}
	return measure.Table(os.Stdout, results)
}
