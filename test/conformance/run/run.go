// Package run runs Kubernetes' end-to-end suites on a node of its own.
//
// Reads: .bin. Writes: the output directory; for the node suite also /var/lib/kubelet, in mounts of its own. Owns: the
// test bed and ginkgo's processes while Suite runs.
//
// Guarantees: Suite leaves nothing but the output directory behind; a suite that ends without a report is an error.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"kubelot.dev/test/conformance"
	"kubelot.dev/test/testbed/node"
	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/vm/guest"
	"kubelot.dev/test/vm/machine"
)

const (
	// stopGrace is what ginkgo has to clean up after an interrupt.
	stopGrace = 90 * time.Second
	lookEvery = 10 * time.Second
	// mostAlone is how many failed specs of a quick run are run again: more of them are no accident.
	mostAlone = 10
)

// Options say what is run and where its results go.
type Options struct {
	Agent  node.Agent
	Scope  conformance.Scope
	Out    string // directory: bed, results, logs
	Procs  int    // specs at a time
	Repeat int
	// Timeout is for one run of the suite, with what is run again alone.
	Timeout time.Duration
	// Machine is what kubelot is installed from in a virtual machine, whose node the suite is run on; empty is a node on
	// this host. Runtime is that machine's, and Topology that of the machine of the suite NUMA.
	Machine  string
	Runtime  guest.Runtime
	Topology machine.Topology
	// Passes are the specs that must be run, as far as they are in scope.
	Passes []string
	// Log gets the progress.
	Log io.Writer
}

// stage is where a suite is run.
type stage interface {
	// program of the suite, or what runs it.
	program() string
	// args of it, for what is asked for and results in the directory.
	args(o Options, dir string) []string
	// env is added to its environment.
	env() []string
	// close ends and removes what the suite was run on.
	close() error
}

// Suite starts a test bed with the agent and runs the suite on it, as often as asked. The results are the worst of all
// runs.
func Suite(ctx context.Context, o Options) (results conformance.Results, err error) {
	if o.Machine != "" && o.Scope.Suite.Target == conformance.NUMA().Target {
		return inside(ctx, o)
	}
	on, err := o.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, on.close()) }()
	var all []conformance.Results
	for i := range o.Repeat {
		fmt.Fprintf(o.Log, "%s: run %d of %d\n", o.Agent, i+1, o.Repeat)
		one, err := o.withRetry(ctx, on, strconv.Itoa(i+1))
		if err != nil {
			return nil, err
		}
		one.AddLost(o.Scope.Expected(o.Passes))
		all = append(all, one)
	}
	return conformance.Worst(all...), nil
}

// begin makes the stage of the suite.
func (o Options) begin(ctx context.Context) (stage, error) {
	switch o.Scope.Suite.Target {
	case conformance.Node().Target, conformance.NUMA().Target:
		return nodeStage(ctx, o)
	case conformance.Storage().Target:
		return storageStage(ctx, o)
	default:
		if o.Machine != "" {
			return machineStage(ctx, o)
		}
		return clusterStage(ctx, o)
	}
}

// withRetry runs the suite, and in a quick run the few specs that failed once more.
func (o Options) withRetry(ctx context.Context, on stage, name string) (conformance.Results, error) {
	begin := time.Now()
	results, err := o.once(ctx, on, name)
	if err != nil {
		return nil, err
	}
	failed := results.Failures()
	if !o.Scope.Quick || len(failed) == 0 || len(failed) > mostAlone {
		return results, nil
	}
	alone, err := o.alone(failed, time.Since(begin)).once(ctx, on, name+"-alone")
	if err != nil {
		return nil, fmt.Errorf("%d specs failed (%q) and were run again alone: %w", len(failed), failed, err)
	}
	fmt.Fprintf(o.Log, "%s: %d specs failed and were run alone then; these failed again: %q\n", o.Agent,
		len(failed), alone.Failures())
	maps.Copy(results, alone)
	return results, nil
}

// alone is for specs that failed next to others: the suite has time limits of its own, which a busy machine may exceed.
// They have the rest of the time.
func (o Options) alone(specs []string, spent time.Duration) Options {
	o.Scope, o.Procs = conformance.Alone(o.Scope.Suite, specs), 1
	// Zero is no limit for ginkgo.
	o.Timeout = max(o.Timeout-spent, time.Second)
	return o
}

// once runs the suite and reads its report.
func (o Options) once(ctx context.Context, on stage, name string) (conformance.Results, error) {
	dir := filepath.Join(o.Out, string(o.Agent), name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, fmt.Errorf("results of %s: %w", o.Agent, err)
	}
	ginkgo, err := proc.Start(proc.Spec{
		Name: "ginkgo", Path: on.program(), Dir: dir, Args: on.args(o, dir), Env: on.env(),
	})
	if err != nil {
		return nil, err
	}
	// Ginkgo keeps the limit itself, but only asks a spec to end.
	late := fmt.Errorf("the suite hasn't ended %s after its time limit of %s", stopGrace, o.Timeout)
	bounded, cancel := context.WithTimeoutCause(ctx, o.Timeout+stopGrace, late)
	defer cancel()
	if err := o.await(bounded, ginkgo); err != nil {
		return nil, err
	}
	full := filepath.Join(dir, "junit_01.xml")
	report, err := conformance.ReadJUnit(full)
	if err != nil {
		return nil, fmt.Errorf("%w; end of %s:\n%s", err, ginkgo.LogPath(), ginkgo.LogTail(3000))
	}
	if err := shorten(full, filepath.Join(dir, "junit.xml")); err != nil {
		return nil, err
	}
	if err := report.Check(ginkgo.ExitCode()); err != nil {
		return nil, fmt.Errorf("%w (time limit %s); end of %s:\n%s", err, o.Timeout, ginkgo.LogPath(), ginkgo.LogTail(3000))
	}
	if len(report.Results) == 0 {
		return nil, fmt.Errorf("no spec was run: does the focus match any? end of %s:\n%s", ginkgo.LogPath(),
			ginkgo.LogTail(1000))
	}
	return report.Results, nil
}

// await waits for the suite's end and tells how far it is.
func (o Options) await(ctx context.Context, ginkgo *proc.Process) error {
	begin, told := time.Now(), progress{}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ginkgo.Done():
			return nil
		case <-tick.C:
			now := look(ginkgo.LogPath())
			for _, line := range now.since(told) {
				fmt.Fprintf(o.Log, "%s: %s, %s\n", o.Agent, line, time.Since(begin).Round(time.Second))
			}
			told = now
		case <-ctx.Done():
			// Ginkgo deletes the specs' namespaces first.
			_ = ginkgo.Signal(syscall.SIGINT)
			select {
			case <-ginkgo.Done():
			case <-time.After(stopGrace):
				ginkgo.Kill()
			}
			return context.Cause(ctx)
		}
	}
}

func shorten(from, to string) error {
	file, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := conformance.Shorten(from, file); err != nil {
		_ = file.Close()
		return err
	}
	return errors.Join(file.Close(), os.Remove(from))
}
