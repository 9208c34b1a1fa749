package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/test/bench/baseline"
	"kubelot.dev/test/bench/chart"
	"kubelot.dev/test/bench/goals"
	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/bench/report"
	"kubelot.dev/test/bench/run"
	"kubelot.dev/test/testbed/images"
)

func newCommand() *cobra.Command {
	options := run.Default()
	var quick bool
	var out string
	root := &cobra.Command{
		Use:   "bench",
		Short: "Measure the bare CRI calls and node agents in one run, against a control plane of their own",
		Long: `Runs each subject as a node of its own, round by round, and saves what it found (bench.json) after each.
At the end it draws charts and writes a page with the tables. With --quick it measures less, and fails if a figure
is worse, by more than a margin, than its goal or than what it is held to where the goal is missed.`,
		Example: `  bench --rounds 3 --out docs/bench
  bench --part latency,burst --subject kubelet,kubelot --rounds 2
  bench --part memory --churn 500`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if quick {
				options.Quick(cmd.Flags().Changed)
			}
			return measureAll(cmd.Context(), options, out, quick)
		},
	}
	flags := root.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&options.Parts, "part", options.Parts, "what to measure")
	flags.StringSliceVar(&options.Subjects, "subject", options.Subjects, "whom to measure")
	flags.IntVar(&options.Rounds, "rounds", options.Rounds, "how often, in alternating order")
	flags.IntVar(&options.Pods, "pods", options.Pods, "pods at once, where the part doesn't say")
	flags.IntSliceVar(&options.Bursts, "burst", options.Bursts, "further numbers of pods at once, in part burst")
	flags.IntVar(&options.Churn, "churn", options.Churn, "pods that come and go before memory is read")
	flags.IntVar(&options.Repeat, "repeat", options.Repeat, "single pods, and containers that end")
	flags.StringSliceVar(&options.Probes, "probe", options.Probes, "kinds of probes, in part probes")
	flags.IntVar(&options.Probed, "probed", options.Probed, "pods with a probe each second, in part probes")
	flags.DurationVar(&options.Idle, "idle", options.Idle, "how long the CPU time of idle agents is taken")
	flags.DurationVar(&options.Rest, "rest", options.Rest, "how long agents rest before their memory is read")
	flags.StringVar(&options.Dir, "dir", "", "directory of the test bed, whose logs stay (default: a temporary one)")
	flags.StringVar(&out, "out", ".", "directory for the result")
	flags.BoolVar(&quick, "quick", false, "a short form that judges what depends little on the clock")
	root.AddCommand(renderCommand(), baselineCommand())
	return root
}

func measureAll(ctx context.Context, options run.Options, out string, quick bool) error {
	if err := makeDir(out); err != nil {
		return err
	}
	options.Version, options.Log = os.Getenv("KUBELOT_VERSION"), os.Stderr
	options.Save = func(r report.Report) error { return r.Save(filepath.Join(out, dataFile)) }
	r, err := run.All(ctx, options)
	if len(r.Rounds) == 0 {
		return err
	}
	if showErr := show(r, out); err == nil {
		err = showErr
	}
	if err != nil || !quick {
		return err
	}
	missed := goals.Missed(r, goals.Judge(r, goals.For(r.Setup.Pods)))
	for _, v := range missed {
		fmt.Fprintf(os.Stderr, "worse than the %s that the quick form lets pass: %s\n", v.Bound(), v)
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d figures are worse than they were", len(missed))
	}
	return nil
}

func makeDir(out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("make the directory for the result: %w", err)
	}
	return nil
}

func renderCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "render FILE...",
		Short: "Write the page and the charts of a result, or of several that measured different parts",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			var all []report.Report
			for _, file := range files {
				r, err := report.Load(file)
				if err != nil {
					return err
				}
				all = append(all, r)
			}
			if err := makeDir(out); err != nil {
				return err
			}
			joined := report.Join(all)
			if err := joined.Save(filepath.Join(out, dataFile)); err != nil {
				return err
			}
			return show(joined, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", ".", "directory for the result")
	return cmd
}

// The files of a result besides the charts.
const (
	dataFile = "bench.json"
	pageFile = "README.md"
)

// show prints the tables and writes the page and the charts.
func show(r report.Report, out string) error {
	if err := chart.Write(out, r); err != nil {
		return err
	}
	page, err := os.Create(filepath.Join(out, pageFile))
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	defer page.Close()
	if err := writePage(page, r); err != nil {
		return err
	}
	if err := report.Table(os.Stdout, r); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout)
	return goals.Table(os.Stdout, goals.Judge(r, goals.For(r.Setup.Pods)))
}

func baselineCommand() *cobra.Command {
	var (
		socket       string
		options      baseline.Options
		repeat, pods int
	)
	cmd := &cobra.Command{
		Use:   "baseline",
		Short: "Measure the bare CRI calls on a running container runtime",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			begin := time.Now()
			result, err := baseline.Measure(cmd.Context(), socket, options, repeat, pods)
			if err != nil {
				return err
			}
			round := report.Round{
				Round: 1, Subject: report.Baseline, Took: time.Since(begin).Seconds(),
				Figures: measure.Figures{},
			}
			round.Figures.Add(result.Figures(pods))
			return report.Table(os.Stdout, report.Report{Schema: report.Schema, Rounds: []report.Round{round}})
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "/run/containerd/containerd.sock", "CRI socket")
	cmd.Flags().StringVar(&options.Image, "image", images.PauseRef, "image that is there and ends at once on SIGTERM")
	cmd.Flags().StringVar(&options.CgroupParent, "cgroup-parent", "/kubelot-baseline", "parent of the pods' cgroups")
	cmd.Flags().StringVar(&options.LogDir, "log-dir", "/tmp/kubelot-baseline-logs", "directory of the pods' logs")
	cmd.Flags().IntVar(&repeat, "repeat", 11, "single pods")
	cmd.Flags().IntVar(&pods, "pods", 100, "pods at once; none if zero")
	return cmd
}
