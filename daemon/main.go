package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"kubelot.dev/bus"
	"kubelot.dev/bus/nats"
	"kubelot.dev/daemon/cgroupmove"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/fdstore"
	"kubelot.dev/daemon/hangup"
	"kubelot.dev/daemon/memory"
)

// errEnded is a daemon that ended although nobody asked it to.
var errEnded = errors.New("the daemon ended although nothing asked it to")

// stopSignal is the cause of a context that a signal ended.
type stopSignal struct{ os.Signal }

func (s stopSignal) Error() string { return "stopped by signal: " + s.String() }

// Main runs the daemon as this process and ends the process when it is done.
func Main(spec Spec) {
	limitProcessors(spec)
	p := process{spec: spec, stderr: os.Stderr, dial: dialBus}
	os.Exit(p.main(os.Args[1:], os.Stdout))
}

// MainGroup runs several daemons as this process, and ends the process when all are done. program is the name of the
// executable and args are the command line behind the list of daemons. docs/adr/0016 says what the daemons share.
func MainGroup(program string, specs []Spec, args []string) {
	g := group{
		program: program, specs: specs, stderr: os.Stderr, dial: dialBus, patience: busPatience, leave: leavePatience,
	}
	os.Exit(g.main(args, os.Stdout))
}

// process is one run of a daemon as a process.
type process struct {
	spec   Spec
	stderr *os.File
	dial   dialer

	commandLine commandLine
	hangups     hangups
}

// dialer connects a daemon to the bus.
type dialer func(ctx context.Context, spec Spec, c *config.Config, log *slog.Logger) (bus.Transport, error)

// main is Main without the process's end: it returns the exit code.
func (p *process) main(args []string, stdout io.Writer) int {
	ctx, stop := stopOnSignal(context.Background(), p.stderr, p.hangups.reload)
	defer stop()
	command := p.command()
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(p.stderr)
	tries := retriesOf(p.spec.Name, config.RunDir, p.stderr)
	if !tries.hold(ctx) {
		return 0
	}
	defer tries.steadily()()
	err := command.ExecuteContext(ctx)
	tries.ended(err)
	if err != nil {
		fmt.Fprintf(p.stderr, "kubelot-%s: %v\n", p.spec.Name, err)
		return 1
	}
	return 0
}

func (p *process) command() *cobra.Command {
	command := &cobra.Command{
		Use:               "kubelot-" + p.spec.Name,
		Short:             p.spec.Doc,
		Version:           Version(),
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(c *cobra.Command, _ []string) error {
			p.commandLine.parsed(c.Flags())
			return p.run(c.Context())
		},
	}
	p.commandLine.register(command.Flags(), p.spec)
	return command
}

// commandLine holds the flags that concern all daemons of a process.
type commandLine struct {
	flags   config.Flags
	style   logStyle
	profile bool
	given   map[string]string // the flags with their values
}

func (l *commandLine) register(fs *pflag.FlagSet, specs ...Spec) {
	fs.SortFlags = false
	l.flags.Register(fs)
	fs.Var(&l.style, "log-style", "format of log lines: auto, human, text (key=value) or json")
	fs.BoolVar(&l.profile, "profiling", false, "serve pprof on the socket of the metrics")
	for _, spec := range specs {
		if spec.Flags != nil {
			spec.Flags(fs)
		}
	}
}

// profiles reports whether the process serves profiles.
func (l *commandLine) profiles(c *config.Config, specs ...Spec) bool {
	return l.profile || *c.Kubelet.EnableProfilingHandler &&
		slices.ContainsFunc(specs, func(s Spec) bool { return s.Profiles })
}

// parsed notes what was given.
func (l *commandLine) parsed(fs *pflag.FlagSet) {
	l.given = map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) { l.given[f.Name] = f.Value.String() })
}

func (p *process) run(ctx context.Context) error {
	c, err := p.commandLine.flags.Load()
	if err != nil {
		return err
	}
	logs := &logOptions{style: p.commandLine.style}
	logs.configure(c, p.spec.Name, term.IsTerminal(int(p.stderr.Fd())))
	log := logs.logger(p.stderr)
	defer cgroupmove.Own(ctx, c.Kubelet.KubeletCgroups, log)()
	if !p.spec.LibraryMetrics {
		dropLibraryMetrics()
	}
	if !p.commandLine.profiles(c, p.spec) {
		memory.ForgoProfile()
	}
	defer memory.Save(ctx, log, 1)()
	place := &place{
		config: c, line: &p.commandLine, logs: logs, log: log, dial: p.dial, above: &unit{log: log},
		connections: fdstore.FromEnvironment(log), metrics: ofProcess(), hangups: &p.hangups,
	}
	err = place.serve(ctx, p.spec)
	if err != nil {
		log.Error("daemon ended", "error", err)
		return err
	}
	log.Info("daemon stopped", "cause", context.Cause(ctx))
	return nil
}

// place is what a daemon finds where it runs, alone in its process or in a group.
type place struct {
	config *config.Config
	line   *commandLine
	logs   *logOptions
	log    *slog.Logger
	dial   dialer
	above  supervisor
	// metrics are those of the process, if this daemon is to show them.
	metrics     []prometheus.Collector
	connections *fdstore.Store
	inProcess   *InProcess // nil where the process is this daemon and no other
	hangups     *hangups
}

// serve builds the daemon's environment, runs it and takes the environment down.
func (p *place) serve(ctx context.Context, spec Spec) error {
	p.log.Info("daemon starting", "version", Version(), "pid", os.Getpid(), "node", p.config.NodeName)
	if spec.Name == warner {
		for _, warning := range p.config.Warnings {
			p.log.Warn(warning)
		}
	}
	var conn *bus.Conn
	if !spec.WithoutBus {
		transport, err := p.dial(ctx, spec, p.config, p.log)
		if err != nil {
			return err
		}
		conn = bus.NewConn(transport, spec.Name, p.log)
		defer conn.Close()
	}
	env := newEnv(spec, conn, p.above, p.log)
	env.Metrics.MustRegister(p.metrics...)
	env.Config, env.Connections, env.InProcess, env.Flags = p.config, p.connections, p.inProcess, p.line.given
	env.Pages.HandleFunc("PUT "+VerbosityPath, p.logs.serveVerbosity)
	defer p.reloading(env, spec.Name)()
	socket := filepath.Join(p.config.RunDir, "metrics", spec.Name+".sock")
	metrics, err := serveMetrics(ctx, socket, env.Metrics, env.Pages, p.line.profile)
	if err != nil {
		p.log.Warn("can't serve metrics", "error", err)
	}
	defer func() { metrics.stop(context.WithoutCancel(ctx)) }()
	if p.inProcess == nil && metrics != nil {
		env.Sleep = p.sleeper(ctx, spec.Name, env, metrics)
	}
	return ended(ctx, RunWith(ctx, spec, env))
}

// reloading lets the daemon read its configuration again, on SIGHUP and when it is asked at ReloadPath, until stop is
// called.
func (p *place) reloading(env Env, name string) (stop func()) {
	r := &reloader{
		daemon: name, load: p.line.flags.Load, reloads: env.Reloads, logs: p.logs, log: p.log, running: p.config,
		refused: func(error) {},
	}
	if h, ok := env.Health.(*health); ok {
		r.refused = h.refuse
	}
	env.Pages.HandleFunc("POST "+ReloadPath, r.serve)
	env.Pages.HandleFunc("GET "+ReloadPath, r.serve)
	return p.hangups.add(r)
}

// warner is the daemon that logs the configuration's warnings for the whole crew: all daemons read the same file, and
// each would say all of them.
const warner = "podsync"

// ended turns what Run returned into the reason for the exit code: none after a requested stop.
func ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil && err == nil:
		return errEnded
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
		return nil
	}
	return err
}

func dialBus(ctx context.Context, spec Spec, c *config.Config, log *slog.Logger) (bus.Transport, error) {
	return nats.Dial(ctx, busOptions(spec, c, log))
}

func busOptions(spec Spec, c *config.Config, log *slog.Logger) nats.Options {
	return nats.Options{
		Socket:  c.BusSocket,
		KeyFile: filepath.Join(c.RunDir, "keys", spec.Name+".nk"),
		Daemon:  spec.Name,
		Log:     log,
	}
}

// stopOnSignal ends the context on SIGTERM or SIGINT, and the process on the second of them. On SIGHUP it calls reload.
func stopOnSignal(parent context.Context, stderr *os.File, reload func()) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	stopHangups := hangup.On(stderr, reload, func() { cancel(stopSignal{syscall.SIGHUP}) })
	done := make(chan struct{})
	go func() {
		for count := 0; ; count++ {
			select {
			case s := <-signals:
				if count > 0 {
					os.Exit(128 + int(s.(syscall.Signal)))
				}
				cancel(stopSignal{s})
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		stopHangups()
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
