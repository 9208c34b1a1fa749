// Package run runs the benchmark: one containerd and control plane, each subject a node of its own in each round.
//
// Reads and writes: a test bed, the API server of its control plane. Owns: the bed, and the agents it starts.
//
// Guarantees: subjects are measured alone, in an order that is turned round with each round; what a subject did is
// saved before the next begins.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"kubelot.dev/test/bench/agent"
	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/bench/report"
	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/node"
)

// The parts, in the order in which they run: what starts afresh comes first, what leaves much behind last.
const (
	Fresh   = "fresh"   // memory before any pod
	Latency = "latency" // pods one at a time
	Burst   = "burst"   // pods at once, CPU
	Probes  = "probes"  // the same with probes
	Exit    = "exit"    // container exit to status
	Config  = "config"  // ConfigMap change to file
	Restart = "restart" // of the agent
	Volumes = "volumes" // of CSI drivers, pods one at a time
	Devices = "devices" // of a device plugin, pods at once
	Memory  = "memory"  // after churn
	Hop     = "hop"     // over the bus
)

// Options say what is measured.
type Options struct {
	Parts    []string
	Subjects []string
	Rounds   int
	Pods     int
	Bursts   []int // besides Pods
	Churn    int
	Repeat   int
	Probes   []string
	Probed   int // pods with a probe each second
	Idle     time.Duration
	Rest     time.Duration
	Brief    bool   // see agent.Options
	Dir      string // of the bed; empty is a temporary one
	Version  string
	Log      io.Writer
	Save     func(report.Report) error // called after each subject
}

// Default is the full benchmark.
func Default() Options {
	return Options{
		Parts:    []string{Fresh, Latency, Burst, Probes, Exit, Config, Restart, Volumes, Devices, Memory, Hop},
		Subjects: slices.Clone(report.Subjects),
		Rounds:   3, Pods: 100, Bursts: []int{30, 110}, Churn: 2000, Repeat: 11,
		Probes: []string{"exec", "http", "grpc"}, Probed: 100,
		Idle: 30 * time.Second, Rest: 30 * time.Second,
	}
}

// Quick makes it the form of about six minutes, except for what was set on the command line. That is on a machine that
// starts a sandbox in 115 ms; where it takes 335 ms they are twelve. Half of the time are rests: what is read of an
// agent that isn't at rest says little.
func (o *Options) Quick(set func(flag string) bool) {
	brief := Options{
		Parts:    []string{Fresh, Latency, Burst, Probes, Memory},
		Subjects: []string{report.Baseline, report.Kubelet, report.Kubelot, report.Compact},
		Rounds:   1, Pods: 30, Churn: 60, Repeat: 5, Probes: []string{"exec"}, Probed: 10,
		Idle: 12 * time.Second, Rest: 8 * time.Second,
	}
	o.Brief = true
	for flag, take := range map[string]func(){
		"part":    func() { o.Parts = brief.Parts },
		"subject": func() { o.Subjects = brief.Subjects },
		"rounds":  func() { o.Rounds = brief.Rounds },
		"pods":    func() { o.Pods = brief.Pods },
		"burst":   func() { o.Bursts = brief.Bursts },
		"churn":   func() { o.Churn = brief.Churn },
		"repeat":  func() { o.Repeat = brief.Repeat },
		"probe":   func() { o.Probes = brief.Probes },
		"probed":  func() { o.Probed = brief.Probed },
		"idle":    func() { o.Idle = brief.Idle },
		"rest":    func() { o.Rest = brief.Rest },
	} {
		if !set(flag) {
			take()
		}
	}
}

// agents are the subjects that the test bed can run.
var agents = map[string]node.Agent{
	report.Kubelet: node.Kubelet, report.Kubelot: node.Kubelot, report.Compact: node.KubelotCompact,
}

// check finds mistakes before anything is started.
func (o *Options) check() error {
	for _, part := range o.Parts {
		if !slices.Contains(Default().Parts, part) {
			return fmt.Errorf("there is no part %q, only %s", part, strings.Join(Default().Parts, ", "))
		}
	}
	for _, subject := range o.Subjects {
		if !slices.Contains(report.Subjects, subject) {
			return fmt.Errorf("there is no subject %q, only %s", subject, strings.Join(report.Subjects, ", "))
		}
	}
	if o.Rounds < 1 || o.Pods < 1 || o.Repeat < 1 || o.Probed < 1 {
		return errors.New("rounds, pods, repeat and probed must be 1 at least")
	}
	return nil
}

// bench is a benchmark that runs.
type bench struct {
	Options
	cluster  *cluster.Cluster
	client   *kubernetes.Clientset // the administrator's
	report   report.Report
	begun    time.Time
	round    int
	parallel int // of the hollow agent
}

// All measures and returns what was found, also when it is interrupted.
func All(ctx context.Context, o Options) (r report.Report, err error) {
	if err := o.check(); err != nil {
		return r, err
	}
	b := &bench{Options: o, begun: time.Now(), parallel: 4}
	b.report = report.Report{
		Schema: report.Schema, Begun: b.begun, Version: o.Version, Machine: machine(),
		Setup: report.Setup{
			Pods: o.Pods, Churn: o.Churn, Probed: o.Probed, Parts: o.Parts, Rounds: o.Rounds,
			Rest: agent.ChurnRest(o.Rest, o.Brief).Seconds(),
		},
	}
	b.say("starting containerd and the control plane")
	if b.cluster, err = cluster.Start(ctx, cluster.Options{Dir: o.Dir, Out: o.Log, ControlPlane: true}); err != nil {
		return b.report, err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.prepare(ctx); err != nil {
		return b.report, err
	}
	err = b.rounds(ctx)
	b.say("done")
	return b.report, err
}

// prepare makes what all rounds use.
func (b *bench) prepare(ctx context.Context) error {
	config, err := b.cluster.ControlPlane.RESTConfig()
	if err != nil {
		return err
	}
	if b.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("API client: %w", err)
	}
	if !b.has(Probes) {
		return nil
	}
	return b.cluster.ImportTestServer(ctx)
}

// rounds measures every subject in every round. One that fails, such as an agent that can't cope with all the probes
// asked of it, doesn't keep the others from being measured.
func (b *bench) rounds(ctx context.Context) error {
	var errs []error
	subjects := slices.Clone(b.Subjects)
	for b.round = 1; b.round <= b.Rounds; b.round++ {
		for _, subject := range subjects {
			if err := b.subject(ctx, subject); err != nil {
				b.say("%s: failed: %v", subject, err)
				errs = append(errs, fmt.Errorf("round %d: measure %s: %w", b.round, subject, err))
			}
			if ctx.Err() != nil {
				return errors.Join(errs...)
			}
		}
		slices.Reverse(subjects)
	}
	return errors.Join(errs...)
}

// subject measures one and saves the report. What it did before it failed is saved too.
func (b *bench) subject(ctx context.Context, subject string) error {
	begin := time.Now()
	round := report.Round{Round: b.round, Subject: subject, Figures: measure.Figures{}}
	b.say("%s: begin", subject)
	var err error
	switch subject {
	case report.Baseline:
		err = b.baseline(ctx, &round)
	case report.Hollow:
		err = b.hollow(ctx, &round)
	default:
		err = b.agent(ctx, agents[subject], &round)
	}
	round.Took = time.Since(begin).Seconds()
	b.say("%s: took %.0f s", subject, round.Took)
	return b.keep(round, err)
}

// keep saves what a subject did, and returns why it did no more.
func (b *bench) keep(round report.Round, err error) error {
	if len(round.Figures) > 0 {
		b.report.Rounds = append(b.report.Rounds, round)
	}
	return errors.Join(err, b.Save(b.report))
}

func (b *bench) has(part string) bool { return slices.Contains(b.Parts, part) }

// say prints a line of progress.
func (b *bench) say(format string, args ...any) {
	took := time.Since(b.begun).Round(time.Second)
	fmt.Fprintf(b.Log, "bench %3d:%02d ", int(took.Minutes()), int(took.Seconds())%60)
	if b.round > 0 && b.round <= b.Rounds {
		fmt.Fprintf(b.Log, "round %d/%d ", b.round, b.Rounds)
	}
	fmt.Fprintf(b.Log, format+"\n", args...)
}

// machine describes this one.
func machine() report.Machine {
	m := report.Machine{CPUs: runtime.NumCPU()}
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(release))
	}
	return m
}
