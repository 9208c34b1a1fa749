package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/test/bench/churn"
	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/bench/rig"
	"kubelot.dev/test/bench/soak"
)

const (
	// samples is how many a run takes if it may choose, and leastPause the time between them: the crew rests for a part
	// of it.
	samples    = 24
	leastPause = 20 * time.Second
)

type options struct {
	rig      rig.Options
	span     time.Duration
	marks    []int
	every    int
	parallel int
	kinds    []string
	settle   time.Duration
	rest     time.Duration
	json     string
}

func newCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "soak",
		Short: "Have pods come and go on a node, and fail on what grows with each of them",
		Long: `Has pods come and go on a node with a control plane of its own, and samples between them what the crew's
processes, the bus's store and the directories hold. A line is fitted through the second half of the samples; growth
per pod that is significant and above the measure's limit fails the run. So does a daemon that was started again, and a
run so short or so noisy that a leak of a KiB for each pod would not have shown. What the bus holds is compared at rest:
at half of the time and at its end, or at the numbers of --pods, where it may also have no more than 25 MiB.`,
		Example: `  soak --for 10m
  soak --runtime scripted --pods 2000,20000`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	flags := c.Flags()
	flags.StringVar(&o.rig.Runtime, "runtime", rig.Containerd,
		"container runtime: containerd, or scripted, which starts no processes")
	flags.StringVar(&o.rig.Dir, "dir", "", "directory of the test bed, whose logs stay (default: a temporary one)")
	flags.DurationVar(&o.span, "for", 10*time.Minute, "how long pods come and go, unless --pods is given")
	flags.IntSliceVar(&o.marks, "pods", nil,
		"numbers of pods at which what the bus holds is judged, in ascending order; the last one ends the run. One number "+
			"stands for its half too")
	flags.IntVar(&o.every, "every", 0, "pods between two samples, with --pods (default: a 24th of the last)")
	flags.IntVar(&o.parallel, "parallel", 20, "pods at a time")
	flags.StringSliceVar(&o.kinds, "kinds", churn.Names(), "kinds of pods, taken in turns")
	flags.DurationVar(&o.settle, "settle", 11*time.Second, "how long the crew rests before a sample")
	flags.DurationVar(&o.rest, "rest", 90*time.Second, "how long the crew rests before what the bus holds is judged")
	flags.StringVar(&o.json, "json", "", "file for all samples")
	return c
}

func (o *options) run(ctx context.Context) (err error) {
	kinds, err := churn.KindsOf(o.kinds)
	if err != nil {
		return err
	}
	o.rig.MaxPods = max(110, 2*o.parallel)
	r, err := rig.Start(ctx, o.rig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Stop()) }()
	pods, err := r.Churn(ctx, kinds, o.parallel)
	if err != nil {
		return err
	}
	begin := time.Now()
	taken, err := soak.Run(ctx, pods, r.Crew.Read, o.plan(begin))
	if err != nil {
		return err
	}
	return o.report(taken, time.Since(begin))
}

func (o *options) plan(begin time.Time) soak.Plan {
	if len(o.marks) == 1 {
		o.marks = []int{o.marks[0] / 2, o.marks[0]}
	}
	plan := soak.Plan{
		Settle: o.settle, Rest: o.rest, Every: o.every, Marks: o.marks,
		Told: func(s soak.Sample) { progress(s, begin) },
	}
	if len(o.marks) == 0 {
		plan.For = o.span
		plan.Pause = max(leastPause, o.span/samples) - o.settle
		return plan
	}
	if plan.Every == 0 {
		plan.Every = max(1, o.marks[len(o.marks)-1]/samples)
	}
	return plan
}

func progress(s soak.Sample, begin time.Time) {
	bus, err := s.Bus()
	if err != nil {
		return // the end says so
	}
	fmt.Fprintf(os.Stderr, "soak: %5.0f s, %6d pods; bus %.1f MiB private + %.1f MiB store; all processes %.1f MiB\n",
		time.Since(begin).Seconds(), s.Pods, float64(bus.Private)/(1<<20), float64(s.Store.Bytes)/(1<<20),
		float64(s.PSS())/(1<<20))
}

// report writes what was found, and is an error if something grows.
func (o *options) report(taken []soak.Sample, took time.Duration) error {
	growth, few := soak.Judge(taken)
	if o.json != "" {
		report := soak.Report{Runtime: o.rig.Runtime, Seconds: took.Seconds(), Growth: growth, Samples: taken}
		if err := measure.Save(o.json, report); err != nil {
			return err
		}
	}
	if err := soak.BusTable(os.Stdout, taken); err != nil {
		return err
	}
	if few != nil {
		return few
	}
	fmt.Println()
	if err := soak.Table(os.Stdout, growth); err != nil {
		return err
	}
	goal := int64(0)
	if len(o.marks) > 0 {
		goal = soak.BusGoal
	}
	return errors.Join(soak.Verdict(taken, growth), soak.BusVerdict(taken, goal))
}
