package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/test/conformance"
	"kubelot.dev/test/conformance/run"
	"kubelot.dev/test/testbed/cri"
	"kubelot.dev/test/testbed/node"
	"kubelot.dev/test/vm/guest"
	"kubelot.dev/test/vm/machine"
)

type options struct {
	suite   conformance.Suite
	agents  []string
	out     string
	quick   bool
	focus   string
	procs   int
	repeat  int
	timeout time.Duration
	update  string
	machine string
	runtime string
	// topology of that machine: sockets, cores of each, threads of each core.
	topology []int
}

func (o options) scope() conformance.Scope {
	suite, runtime := o.suite, os.Getenv(cri.RuntimeEnv)
	if o.machine != "" {
		runtime, suite = o.runtime, suite.Without(tinyCPU)
	}
	if runtime == cri.DebianContainerd {
		suite = suite.Without(imageVolumes)
	}
	return conformance.Scope{Suite: suite, Quick: o.quick, Focus: o.focus}
}

// tinyCPU is a spec whose container has a hundredth of a processor. Where that is emulated, its start takes longer than
// the two minutes that a request to the runtime may take.
const tinyCPU = `resize with equivalents`

// imageVolumes are specs of what containerd 1.6 lacks.
const imageVolumes = `\[sig-node\] ImageVolume`

// usualTopology is that of the machine whose specs numa/passes.txt lists.
var usualTopology = []int{2, 2, 2}

// emulated is how many times longer a machine without KVM may take.
const emulated = 12

// suites are those that can be run, by name.
var suites = map[string]conformance.Suite{
	"cluster": conformance.Cluster(), "node": conformance.Node(), "numa": conformance.NUMA(),
	"storage": conformance.Storage(),
}

func newCommand() *cobra.Command {
	var o options
	var suite string
	cmd := &cobra.Command{
		Use:           "conformance",
		Short:         "Run Kubernetes' conformance specs of a node and compare kubelot with the upstream kubelet",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var ok bool
			if o.suite, ok = suites[suite]; !ok {
				return fmt.Errorf("suite %q: want cluster, node, numa or storage", suite)
			}
			return compare(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&suite, "suite", "cluster", "Kubernetes' suite: cluster (test/e2e), node "+
		"(test/e2e_node), numa (its part for a machine with NUMA nodes) or storage (test/e2e/storage/external)")
	cmd.Flags().StringSliceVar(&o.agents, "agent", []string{"kubelot"},
		"agents to run, one after the other: kubelot, kubelet")
	cmd.Flags().StringVar(&o.out, "out", "", "directory of the results, where those of the other agent are looked for too")
	cmd.Flags().BoolVar(&o.quick, "quick", false, "a part that takes some minutes")
	cmd.Flags().StringVar(&o.focus, "focus", "", "only specs that match this regular expression")
	cmd.Flags().IntVar(&o.procs, "procs", 6, "specs at a time; those of the node suite go one after the other")
	cmd.Flags().IntVar(&o.repeat, "repeat", 1, "runs in a row; a spec must pass in all of them")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "of one run of the specs (default by suite and --quick)")
	cmd.Flags().StringVar(&o.update, "update", "", "file to write with the specs that the kubelet passes")
	cmd.Flags().StringVar(&o.machine, "machine", "", "directory with what kubelot is installed from (deb packages or "+
		"executables) in a virtual machine, whose node the suite is run on")
	cmd.Flags().StringVar(&o.runtime, "runtime", string(guest.Containerd), "container runtime of that machine: "+
		string(guest.Containerd)+" or "+string(guest.DebianContainerd))
	cmd.Flags().IntSliceVar(&o.topology, "topology", usualTopology, "processors of that machine for the suite numa: "+
		"sockets, each a NUMA node, cores of a socket, threads of a core")
	// It fails for an undefined flag only.
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

// check is an error for options that make no sense.
func (o options) check() error {
	for _, agent := range o.agents {
		if agent != string(node.Kubelot) && agent != string(node.Kubelet) {
			return fmt.Errorf("agent %q: want kubelot or kubelet", agent)
		}
	}
	if o.machine != "" {
		if err := o.checkMachine(); err != nil {
			return err
		}
	}
	if o.update != "" && (o.quick || !slices.Contains(o.agents, string(node.Kubelet))) {
		return errors.New("the list of specs that must pass is written from a run under the kubelet: UPDATE=1 " +
			"AGENT=kubelet, without QUICK; with FOCUS only what that means changes")
	}
	return nil
}

// checkMachine is an error for what can't be run in a virtual machine, or not in such a one.
func (o options) checkMachine() error {
	numa := o.suite.Target == conformance.NUMA().Target
	kubelot := slices.Equal(o.agents, []string{string(node.Kubelot)})
	if !numa && (o.suite.Target != conformance.Cluster().Target || !kubelot) {
		return errors.New("in the virtual machine only the suites cluster, under kubelot alone, and numa are run")
	}
	if numa && (len(o.topology) != 3 || slices.Min(o.topology) < 1) {
		return fmt.Errorf("topology %v: want the numbers of sockets, of cores of each, and of threads of each core, such "+
			"as 2,2,2", o.topology)
	}
	if numa && o.update != "" && !slices.Equal(o.topology, usualTopology) {
		return fmt.Errorf("specs that pass with the topology %v may skip themselves with the usual %v, and each listed one "+
			"must pass there: UPDATE=1 without TOPOLOGY", o.topology, usualTopology)
	}
	return nil
}

// arranged is the topology of the machine, where there is one.
func (o options) arranged() machine.Topology {
	if o.suite.Target != conformance.NUMA().Target || o.machine == "" {
		return machine.Topology{}
	}
	return machine.Topology{Sockets: o.topology[0], Cores: o.topology[1], Threads: o.topology[2]}
}

// rules are what the results will be judged by; a list that is written again is not asked.
func (o options) rules() (rules conformance.Rules, err error) {
	rules.KubeletToo = slices.Contains(o.agents, string(node.Kubelet))
	if rules.Limits, err = o.suite.Limits(); err != nil {
		return rules, err
	}
	if rules.Differs, err = o.suite.Differs(); err != nil || o.update != "" && o.focus == "" {
		return rules, err
	}
	rules.Passes, err = o.suite.Passes()
	return rules, err
}

// compare runs the agents, keeps their results, and fails if one of the agents that were run did what it must not.
func compare(ctx context.Context, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	rules, err := o.rules()
	if err != nil {
		return err
	}
	if o.timeout == 0 {
		o.timeout = o.scope().TimeLimit()
		if o.machine != "" {
			o.timeout *= emulated
		}
	}
	results := map[string]conformance.Results{}
	for _, agent := range o.agents {
		results[agent], err = run.Suite(ctx, run.Options{
			Agent: node.Agent(agent), Scope: o.scope(), Passes: rules.Passes,
			Out: o.out, Procs: o.procs, Repeat: o.repeat, Timeout: o.timeout, Log: os.Stderr,
			Machine: o.machine, Runtime: guest.Runtime(o.runtime), Topology: o.arranged(),
		})
		if err != nil {
			return fmt.Errorf("run the suite under %s: %w", agent, err)
		}
		if err := o.keep(agent, results[agent]); err != nil {
			return err
		}
	}
	if o.update != "" {
		rules.Passes = results[string(node.Kubelet)].Renew(rules.Passes)
		if err := write(o.update, func(w io.Writer) error { return o.suite.WritePasses(w, rules.Passes) }); err != nil {
			return err
		}
	}
	known := map[string]conformance.Results{}
	for _, agent := range []string{"kubelot", "kubelet"} {
		if known[agent], err = kept(o.out, agent); err != nil {
			return err
		}
	}
	return judge(o, known, results, rules)
}

// judge writes the table of all that is known and looks at the specs that were run now.
func judge(o options, known, results map[string]conformance.Results, rules conformance.Rules) error {
	all := conformance.Compare(known["kubelot"], known["kubelet"], rules)
	path := filepath.Join(o.out, "table.txt")
	if err := write(path, func(w io.Writer) error { return conformance.WriteTable(w, all) }); err != nil {
		return err
	}
	now := slices.DeleteFunc(all, func(row conformance.Row) bool {
		return !slices.ContainsFunc(o.agents, func(agent string) bool { _, ran := results[agent][row.Spec]; return ran })
	})
	remarkable := slices.DeleteFunc(slices.Clone(now), conformance.Row.Fine)
	if len(remarkable) > 0 {
		if err := conformance.WriteTable(os.Stdout, remarkable); err != nil {
			return err
		}
	}
	fmt.Printf("%sall specs: %s; JUnit, logs: %s/<agent>/<run>\n", conformance.Summary(now), path, o.out)
	for _, agent := range o.agents {
		// A focus may choose what is out of scope.
		if unlisted := results[agent].Unlisted(rules.Passes); o.focus == "" && len(unlisted) > 0 {
			fmt.Printf("%s passes %d specs that passes.txt doesn't name; "+
				"to write it again: UPDATE=1 AGENT=kubelet make %s: %q\n", agent, len(unlisted), o.suite.Target, unlisted)
		}
	}
	if faults := conformance.Faults(now); faults > 0 {
		return fmt.Errorf("%d specs are not as they must be", faults)
	}
	return nil
}

// write writes a file, and leaves it alone if there is no content.
func write(path string, content func(io.Writer) error) error {
	var data bytes.Buffer
	if err := content(&data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, data.Bytes(), 0o644)
}

func resultsFile(out, agent string) string { return filepath.Join(out, agent, "results.json") }

// keep stores what a run found; a run of a part leaves the other specs' earlier results.
func (o options) keep(agent string, results conformance.Results) error {
	all := results
	if o.quick || o.focus != "" {
		var err error
		if all, err = kept(o.out, agent); err != nil {
			return err
		}
		maps.Copy(all, results)
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("keep results of %s: %w", agent, err)
	}
	return os.WriteFile(resultsFile(o.out, agent), data, 0o644)
}

func kept(out, agent string) (conformance.Results, error) {
	results := conformance.Results{}
	data, err := os.ReadFile(resultsFile(out, agent))
	if errors.Is(err, fs.ErrNotExist) {
		return results, nil
	}
	if err != nil {
		return nil, fmt.Errorf("earlier results: %w", err)
	}
	if err := json.Unmarshal(data, &results); err != nil {
		return nil, fmt.Errorf("earlier results in %s: %w; remove the file", resultsFile(out, agent), err)
	}
	return results, nil
}
