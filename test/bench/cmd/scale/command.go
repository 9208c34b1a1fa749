package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"kubelot.dev/test/bench/churn"
	"kubelot.dev/test/bench/crew"
	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/bench/rig"
	"kubelot.dev/test/bench/scale"
)

type options struct {
	rig      rig.Options
	plan     scale.Plan
	kinds    []string
	json     string
	profiles string
}

func newCommand() *cobra.Command {
	o := options{plan: scale.Plan{Warm: 100}}
	c := &cobra.Command{
		Use:   "scale",
		Short: "Measure how CPU time, memory and bytes on the bus depend on the number of pods",
		Long: `Starts and stops so many pods at once, in turns, on a node with a control plane of its own, and has some more come and
go while they run. The run fails where what all pods take at rest has a quadratic part, significant and more than a
tenth of the figure at the largest size; where the bytes to start or stop them have one of more than a fifth; and where
the processor time or the bytes for the same number of more pods grow by more than a fifth with the number of the
others. A daemon that is started again ends it, and fails it too.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	flags := c.Flags()
	flags.StringVar(&o.rig.Runtime, "runtime", rig.Scripted,
		"container runtime: scripted, which starts no processes, or containerd")
	flags.StringVar(&o.rig.Dir, "dir", "", "directory of the test bed, whose logs stay (default: a temporary one)")
	flags.IntSliceVar(&o.plan.Sizes, "pods", []int{125, 250, 500, 1000}, "numbers of pods")
	flags.IntVar(&o.plan.Rounds, "rounds", 2, "rounds")
	flags.DurationVar(&o.plan.Settle, "settle", 11*time.Second, "how long the crew rests after a start or stop")
	flags.DurationVar(&o.plan.Idle, "idle", time.Minute, "how long the idle crew is measured; gc looks at every pod "+
		"once a minute")
	flags.IntVar(&o.plan.More, "more", 100, "how many more pods come and go while the others run")
	flags.StringSliceVar(&o.kinds, "kinds", []string{"plain"}, "kinds of pods, taken in turns")
	flags.StringVar(&o.json, "json", "", "file for all points and fits")
	flags.StringVar(&o.profiles, "profiles", "",
		"directory for CPU profiles of every daemon, taken in a further round of the largest size")
	return c
}

func (o *options) run(ctx context.Context) (err error) {
	kinds, err := churn.KindsOf(o.kinds)
	if err != nil {
		return err
	}
	if len(o.plan.Sizes) == 0 {
		return errors.New("no numbers of pods are given")
	}
	most := slices.Max(o.plan.Sizes)
	o.rig.MaxPods = most + max(o.plan.Warm, o.plan.More)
	r, err := rig.Start(ctx, o.rig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Stop()) }()
	pods, err := r.Churn(ctx, kinds, 20)
	if err != nil {
		return err
	}
	begin := time.Now()
	o.plan.Told = func(p scale.Point) {
		fmt.Fprintf(os.Stderr, "scale: %4.0f s, round %d, %d pods\n", time.Since(begin).Seconds(), p.Round+1, p.Pods)
	}
	points, err := scale.Run(ctx, pods, r.Crew.Read, o.plan)
	if err != nil {
		return err
	}
	err = o.report(points)
	if o.profiles != "" {
		err = errors.Join(err, o.profile(ctx, pods, r.Crew, most))
	}
	return err
}

func (o *options) report(points []scale.Point) error {
	laws, err := scale.Judge(points)
	if o.json != "" {
		if err := measure.Save(o.json, scale.Report{Runtime: o.rig.Runtime, Laws: laws, Points: points}); err != nil {
			return err
		}
	}
	if err := errors.Join(err, scale.Points(os.Stdout, points)); err != nil {
		return err
	}
	fmt.Println()
	if err := scale.Table(os.Stdout, laws); err != nil {
		return err
	}
	return scale.Verdict(laws)
}

// profile takes a CPU profile of every daemon while pods start, while they run, while others come and go, and
// while they stop.
func (o *options) profile(ctx context.Context, pods *churn.Churn, c crew.Crew, size int) error {
	if err := os.MkdirAll(o.profiles, 0o755); err != nil {
		return err
	}
	stages := []struct {
		name string
		do   func(context.Context) error
	}{
		{"start", func(ctx context.Context) error { return pods.Up(ctx, size) }},
		{"idle", func(context.Context) error { return nil }},
		{"more", func(ctx context.Context) error { return pods.Run(ctx, o.plan.More) }},
		{"stop", pods.Down},
	}
	for _, stage := range stages {
		group, ctx := errgroup.WithContext(ctx)
		reading, err := c.Read(ctx)
		if err != nil {
			return err
		}
		for _, p := range reading.Processes {
			if p.Goroutines == nil {
				continue // the supervisor
			}
			group.Go(func() error {
				data, err := c.Profile(ctx, p.Name, "profile?seconds=20")
				if err != nil {
					return err
				}
				return os.WriteFile(filepath.Join(o.profiles, stage.name+"-"+p.Name+".pprof"), data, 0o644)
			})
		}
		group.Go(func() error { return stage.do(ctx) })
		if err := group.Wait(); err != nil {
			return fmt.Errorf("profile the %s of %d pods: %w", stage.name, size, err)
		}
	}
	return nil
}
