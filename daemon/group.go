package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"kubelot.dev/bus"
	"kubelot.dev/bus/nats"
	"kubelot.dev/bus/pause"
	"kubelot.dev/daemon/cgroupmove"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/fdstore"
	"kubelot.dev/daemon/memory"
)

// busPatience is how long the others wait for the bus; after it they start anyway, since they run without it.
const busPatience = 3 * time.Second

// group is one run of several daemons, its members, as a process.
type group struct {
	program string
	specs   []Spec
	stderr  *os.File
	dial    dialer
	// patience is how long the others wait for the bus.
	patience time.Duration
	// leave is how long the goroutines of a daemon that panicked may take to end.
	leave time.Duration

	line        commandLine
	config      *config.Config
	out         *lockedWriter
	log         *slog.Logger // the group's own
	libraries   *libraries
	roster      *roster
	connections *fdstore.Store
	inProcess   *InProcess
	hangups     hangups
}

// main is MainGroup without the process's end: it returns the exit code.
func (g *group) main(args []string, stdout io.Writer) int {
	ctx, stop := stopOnSignal(context.Background(), g.stderr, g.hangups.reload)
	defer stop()
	command := &cobra.Command{
		Use:               g.program + " run LIST",
		Short:             "Run daemons as one process.",
		Version:           Version(),
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(c *cobra.Command, _ []string) error {
			g.line.parsed(c.Flags())
			return g.run(c.Context())
		},
	}
	g.line.register(command.Flags(), g.specs...)
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(g.stderr)
	tries := retriesOf(strings.TrimPrefix(g.program, "kubelot-"), config.RunDir, g.stderr)
	if !tries.hold(ctx) {
		return 0
	}
	defer tries.steadily()()
	err := command.ExecuteContext(ctx)
	tries.ended(err)
	if err != nil {
		fmt.Fprintf(g.stderr, "%s: %v\n", g.program, err)
		return 1
	}
	return 0
}

func (g *group) run(ctx context.Context) error {
	c, err := g.line.flags.Load()
	if err != nil {
		return err
	}
	g.config, g.out, g.inProcess = c, &lockedWriter{w: g.stderr}, &InProcess{}
	g.libraries = &libraries{by: map[string]klog.Level{}}
	logs := g.logs("group", c)
	g.log = logs.logger(g.out)
	defer cgroupmove.Own(ctx, c.Kubelet.KubeletCgroups, g.log)()
	g.connections = fdstore.FromEnvironment(g.log)
	g.roster = newRoster(func(message string) { notify(g.log, message) }, g.names())
	if !g.line.profiles(c, g.specs...) {
		memory.ForgoProfile()
	}
	defer memory.Save(ctx, g.log, len(g.specs))()
	daemons := strings.Join(g.names(), ",")
	g.log.Info("group starting", "version", Version(), "pid", os.Getpid(), "node", c.NodeName, "daemons", daemons)
	if err := g.serve(ctx); err != nil {
		g.log.Error("group ended", "error", err)
		return err
	}
	g.log.Info("group stopped", "cause", context.Cause(ctx))
	return nil
}

func (g *group) names() []string {
	var names []string
	for _, spec := range g.specs {
		names = append(names, spec.Name)
	}
	return names
}

// logs are the log's settings of one life of a member.
func (g *group) logs(name string, c *config.Config) *logOptions {
	o := &logOptions{style: g.line.style, grouped: true, libraries: g.libraries}
	o.configure(c, name, term.IsTerminal(int(g.stderr.Fd())))
	return o
}

// again is the configuration of a member's next life. As in a process of its own, it is what the files say by then,
// unless that is wrong.
func (g *group) again(name string, last *config.Config) *config.Config {
	c, err := g.line.flags.Load()
	if err != nil {
		g.log.Error("the changed configuration is not taken, the daemon starts again as before", "starts", name,
			"error", err)
		return last
	}
	return c
}

// serve runs the members until ctx ends, or one of them can't be started again. The bus starts first and stops last.
func (g *group) serve(ctx context.Context) error {
	crewCtx, stopCrew := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopCrew(nil)
	busCtx, stopBus := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopBus(nil)
	var crew, buses sync.WaitGroup
	ends := make([]error, len(g.specs))
	start := func(i int, ctx context.Context, wait *sync.WaitGroup) {
		wait.Go(func() {
			if ends[i] = g.keep(ctx, i); ends[i] != nil {
				stopCrew(ends[i])
			}
		})
	}
	first := slices.IndexFunc(g.specs, func(s Spec) bool { return s.WithoutBus })
	if first >= 0 {
		start(first, busCtx, &buses)
		g.awaitBus(ctx, g.roster.members[first])
	}
	for i := range g.specs {
		if i != first {
			start(i, crewCtx, &crew)
		}
	}
	select {
	case <-ctx.Done():
	case <-crewCtx.Done():
	}
	notify(g.log, systemd.SdNotifyStopping)
	stopCrew(context.Cause(ctx))
	crew.Wait()
	stopBus(context.Cause(crewCtx))
	buses.Wait()
	return errors.Join(ends...)
}

// awaitBus waits until the bus can be connected to.
func (g *group) awaitBus(ctx context.Context, bus *seat) {
	timer := time.NewTimer(g.patience)
	defer timer.Stop()
	select {
	case <-bus.began:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// keep runs a member again and again until ctx ends. After its error the group must end: the member didn't stop in
// order, or it can't be started again because goroutines of its last life are left.
func (g *group) keep(ctx context.Context, i int) error {
	name, c := g.specs[i].Name, g.config
	var rest time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		err := g.live(ctx, i, c)
		if p := panicIn(err); p != nil {
			g.log.Error("a daemon panicked", "panicked", name, "error", err, "stack", string(p.stack))
			if left := g.leftovers(context.WithoutCancel(ctx), name); left != "" {
				return fmt.Errorf("can't restart daemon %s alone: %w; still running:\n%s", name, err, left)
			}
		}
		if ctx.Err() != nil {
			if err != nil {
				return fmt.Errorf("daemon %s: %w", name, err)
			}
			return nil
		}
		rest = pause.BeforeRestart(rest, time.Since(began))
		g.log.Error("a daemon ended, restarting it; the others continue", "ended", name, "error", err, "pause", rest)
		pause.For(ctx, rest)
		c = g.again(name, c)
	}
	return nil
}

// live is one life of a member.
func (g *group) live(ctx context.Context, i int, c *config.Config) (err error) {
	spec, seat := g.specs[i], g.roster.members[i]
	seat.enter()
	defer seat.leave()
	logs := g.logs(spec.Name, c)
	log := logs.build(g.out)
	place := &place{
		config: c, line: &g.line, logs: logs, log: log, dial: g.dialer(), above: seat,
		connections: g.connections, inProcess: g.inProcess, hangups: &g.hangups,
	}
	if i == 0 {
		place.metrics = ofProcess()
	}
	spec.Run = caught(spec.Run)
	labelled(ctx, spec.Name, func(ctx context.Context) { err = place.serve(ctx, spec) })
	if err == nil {
		log.Info("daemon stopped", "cause", context.Cause(ctx))
	}
	return err
}

// dialer connects members to the bus in this process, where it is one of them.
func (g *group) dialer() dialer {
	if !slices.ContainsFunc(g.specs, func(s Spec) bool { return s.WithoutBus }) {
		return g.dial
	}
	return func(ctx context.Context, spec Spec, c *config.Config, log *slog.Logger) (bus.Transport, error) {
		o := busOptions(spec, c, log)
		o.Connect = g.inProcess.Dial
		return nats.Dial(ctx, o)
	}
}
