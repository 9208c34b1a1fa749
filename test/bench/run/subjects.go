package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/bench/agent"
	"kubelot.dev/test/bench/baseline"
	"kubelot.dev/test/bench/hollow"
	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/bench/report"
	"kubelot.dev/test/deviceplugin"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/node"
	"kubelot.dev/test/testbed/tools"
)

func (b *bench) baselineOptions() baseline.Options {
	bed := b.cluster.Bed
	return baseline.Options{Image: images.PauseRef, CgroupParent: bed.CgroupRoot, LogDir: bed.Path("baselinelogs")}
}

// baseline measures the bare calls. The batches, which take long, are for the hollow agent, or for who asks for
// nothing else.
func (b *bench) baseline(ctx context.Context, round *report.Round) error {
	pods := 0
	if b.has(Burst) && (slices.Contains(b.Subjects, report.Hollow) || len(b.Subjects) == 1) {
		pods = b.Pods
	}
	if !b.has(Latency) && pods == 0 {
		return nil
	}
	result, err := baseline.Measure(ctx, b.cluster.CRI.Socket, b.baselineOptions(), b.Repeat, pods)
	round.Figures.Add(result.Figures(b.Pods))
	if result.Starts.Parallel > 0 {
		b.parallel = result.Starts.Parallel
	}
	return err
}

// hollow runs the hollow agent within this process, as many pods at a time as were best for the bare calls.
func (b *bench) hollow(ctx context.Context, round *report.Round) error {
	client, err := baseline.Dial(b.cluster.CRI.Socket, b.baselineOptions())
	if err != nil {
		return err
	}
	defer client.Close()
	name := b.nodeName(report.Hollow)
	h := hollow.Agent{Client: b.client, Runtime: client, Node: name, Parallel: b.parallel}
	hollowCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- h.Run(hollowCtx) }()
	defer func() { _ = b.forget(ctx, name) }()
	err = b.parts(ctx, b.options(name), round)
	stop()
	return errors.Join(err, <-ended)
}

// agent runs an agent as a node of its own, so that it doesn't meet what another left in the API.
func (b *bench) agent(ctx context.Context, name node.Agent, round *report.Round) (err error) {
	n, err := node.Start(ctx, b.cluster, node.Options{Agent: name, Name: b.nodeName(string(name))})
	if err != nil {
		return err
	}
	o := b.options(n.Name)
	defer func() {
		err = errors.Join(err, n.Remove(), removeCheckpoint(o.DevicePlugins), b.forget(ctx, n.Name))
	}()
	o.Agent, o.RootDir, o.DevicePlugins = n, n.RootDir, deviceplugin.KubeletDir
	if strings.HasPrefix(string(name), string(node.Kubelot)) {
		o.RunDir, o.DevicePlugins = n.RunDir(), filepath.Join(n.RootDir, "device-plugins")
	}
	o.State, o.Attacher = b.cluster.Bed.Path("drivers"), b.attacher
	return b.parts(ctx, o, round)
}

// removeCheckpoint removes what an agent that has ended has left of devices. The kubelet's is in the machine's own
// directory, whatever its root directory is, and the next one would give the Node devices that nobody has any more.
func removeCheckpoint(devicePlugins string) error {
	err := os.Remove(filepath.Join(devicePlugins, "kubelet_internal_checkpoint"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// attacher runs the external-attacher.
func (b *bench) attacher(ctx context.Context, socket string) (<-chan struct{}, error) {
	box, err := tools.Find(b.Log)
	if err != nil {
		return nil, err
	}
	program, args, err := box.CSISidecar(ctx, tools.Attacher, socket, b.cluster.ControlPlane.AdminKubeconfig())
	if err != nil {
		return nil, err
	}
	attacher := exec.CommandContext(ctx, program, args...)
	if err := attacher.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		_ = attacher.Wait()
		close(ended)
	}()
	return ended, nil
}

func (b *bench) nodeName(subject string) string { return fmt.Sprintf("bench-%s-%d", subject, b.round) }

// forget removes the Node object of an agent that has gone, before the controllers wonder where it is.
func (b *bench) forget(ctx context.Context, name string) error {
	nodes := b.client.CoreV1().Nodes()
	err := nodes.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
	if err != nil {
		return fmt.Errorf("delete node %s: %w", name, err)
	}
	return nil
}

func (b *bench) options(name string) agent.Options {
	return agent.Options{
		Node: name, Client: b.client, Runtime: b.cluster.CRI.Runtime(),
		Say:     func(format string, args ...any) { b.say(strings.TrimPrefix(name, "bench-")+": "+format, args...) },
		IdleFor: b.Idle, RestFor: b.Rest, Brief: b.Brief,
		PauseRef: images.PauseRef, ShellRef: images.BusyboxRef, ServerRef: images.TestServerRef,
	}
}

// part is a measurement of an agent.
type part struct {
	name string
	// process reports whether it needs an agent that is a process: the hollow agent isn't.
	process bool
	measure func(context.Context, *agent.Bench) (measure.Figures, error)
}

// counted is a measurement of so many pods, or of whatever it counts.
func counted(
	m func(*agent.Bench, context.Context, int) (measure.Figures, error), n int,
) func(context.Context, *agent.Bench) (measure.Figures, error) {
	return func(ctx context.Context, a *agent.Bench) (measure.Figures, error) { return m(a, ctx, n) }
}

// plan are the parts in their order.
func (b *bench) plan(round *report.Round) []part {
	plan := []part{
		{Fresh, true, func(ctx context.Context, a *agent.Bench) (measure.Figures, error) { return a.Fresh(ctx) }},
		{Latency, false, counted((*agent.Bench).Latency, b.Repeat)},
	}
	bursts := []int{b.Pods}
	for _, n := range b.Bursts {
		// Each number once: two parts would have the same figures.
		if !slices.Contains(bursts, n) {
			bursts = append(bursts, n)
		}
	}
	for _, n := range bursts {
		plan = append(plan, part{Burst, false, counted((*agent.Bench).Burst, n)})
	}
	for _, kind := range b.Probes {
		plan = append(plan, part{Probes, true, func(ctx context.Context, a *agent.Bench) (measure.Figures, error) {
			return a.Probed(ctx, kind, b.Probed)
		}})
	}
	return append(plan,
		part{Exit, true, counted((*agent.Bench).Exit, b.Repeat)},
		part{Config, true, counted((*agent.Bench).Config, configMaps)},
		part{Restart, true, func(ctx context.Context, a *agent.Bench) (measure.Figures, error) {
			return a.Restart(ctx, b.Pods, restarts)
		}},
		part{Volumes, true, counted((*agent.Bench).Volumes, b.Repeat)},
		part{Devices, true, counted((*agent.Bench).Devices, toys)},
		part{Memory, true, func(ctx context.Context, a *agent.Bench) (measure.Figures, error) {
			figures, held, err := a.Churned(ctx, b.Churn, b.Pods)
			if err == nil {
				round.Held = &held
			}
			return figures, err
		}},
		part{Hop, true, counted((*agent.Bench).Hops, b.Pods)},
	)
}

const (
	// configMaps change at once: the kubelet takes more than a minute, so that one after the other would take too long.
	configMaps = 5
	restarts   = 3
	// toys are as many pods with a device as the kubelet runs pods by default.
	toys = 110
)

// parts measures an agent that is ready.
func (b *bench) parts(ctx context.Context, o agent.Options, round *report.Round) error {
	a, err := agent.New(ctx, o)
	if err != nil {
		return err
	}
	defer a.Close()
	for _, p := range b.plan(round) {
		if !b.has(p.name) || (p.process && o.Agent == nil) {
			continue
		}
		figures, err := p.measure(ctx, a)
		round.Figures.Add(figures)
		if err != nil {
			return fmt.Errorf("part %s: %w", p.name, err)
		}
	}
	return nil
}
