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
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"kubelot.dev/bus"
	"kubelot.dev/bus/nats"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/fdstore"
)

// errEnded is a daemon that ended although nobody asked it to.
var errEnded = errors.New("the daemon ended by itself although nothing asked it to")

// stopSignal is the cause of a context that a signal ended.
type stopSignal struct{ os.Signal }

func (s stopSignal) Error() string { return "stopped by signal: " + s.String() }

// Main runs the daemon as this process and ends the process when it is done.
func Main(spec Spec) {
	limitProcessors(spec)
	p := process{spec: spec, stderr: os.Stderr, dial: dialBus}
	os.Exit(p.main(os.Args[1:], os.Stdout))
}

// process is one run of a daemon as a process.
type process struct {
	spec   Spec
	stderr *os.File
	dial   func(ctx context.Context, spec Spec, c *config.Config, log *slog.Logger) (bus.Transport, error)

	flags   config.Flags
	log     logOptions
	profile bool
	given   map[string]string // the flags with their values
}

// main is Main without the process's end: it returns the exit code.
func (p *process) main(args []string, stdout io.Writer) int {
	ctx, stop := stopOnSignal(context.Background())
	defer stop()
	command := p.command()
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(p.stderr)
	if err := command.ExecuteContext(ctx); err != nil {
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
			p.given = map[string]string{}
			c.Flags().VisitAll(func(f *pflag.Flag) { p.given[f.Name] = f.Value.String() })
			return p.run(c.Context())
		},
	}
	fs := command.Flags()
	fs.SortFlags = false
	p.flags.Register(fs)
	fs.Var(&p.log.style, "log-style", "how log lines look: auto, human, text (key=value) or json")
	fs.BoolVar(&p.profile, "profiling", false, "serve pprof beside the metrics")
	if p.spec.Flags != nil {
		p.spec.Flags(fs)
	}
	return command
}

func (p *process) run(ctx context.Context) error {
	c, err := p.flags.Load()
	if err != nil {
		return err
	}
	p.log.configure(c, p.spec.Name, term.IsTerminal(int(p.stderr.Fd())))
	log := p.log.logger(p.stderr)
	if !p.spec.LibraryMetrics {
		dropLibraryMetrics()
	}
	defer SaveMemory(ctx, log)()
	err = p.serve(ctx, c, log)
	if err != nil {
		log.Error("daemon ended", "error", err)
		return err
	}
	log.Info("daemon stopped", "cause", context.Cause(ctx))
	return nil
}

// serve builds the daemon's environment, runs it and takes the environment down.
func (p *process) serve(ctx context.Context, c *config.Config, log *slog.Logger) error {
	log.Info("daemon starting", "version", Version(), "pid", os.Getpid(), "node", c.NodeName)
	if p.spec.Name == warner {
		for _, warning := range c.Warnings {
			log.Warn(warning)
		}
	}
	var conn *bus.Conn
	if !p.spec.WithoutBus {
		transport, err := p.dial(ctx, p.spec, c, log)
		if err != nil {
			return err
		}
		conn = bus.NewConn(transport, p.spec.Name, log)
		defer conn.Close()
	}
	env := NewEnv(p.spec, c, conn, log)
	env.Connections = fdstore.FromEnvironment(log)
	env.Flags = p.given
	env.Pages.HandleFunc("PUT "+VerbosityPath, p.log.serveVerbosity)
	metrics, err := serveMetrics(ctx, filepath.Join(c.RunDir, "metrics", p.spec.Name+".sock"), env.Metrics, env.Pages, p.profile)
	if err != nil {
		log.Warn("metrics are not served", "error", err)
	}
	defer func() { metrics.stop(context.WithoutCancel(ctx)) }()
	return ended(ctx, RunWith(ctx, p.spec, env))
}

// warner is the daemon that logs the configuration's warnings for the whole crew: ten daemons that read
// the same file would say each of them ten times.
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
	return nats.Dial(ctx, nats.Options{
		Socket:  c.BusSocket,
		KeyFile: filepath.Join(c.RunDir, "keys", spec.Name+".nk"),
		Daemon:  spec.Name,
		Log:     log,
	})
}

// stopOnSignal ends the context on SIGTERM or SIGINT, and the process on the second of them.
func stopOnSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
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
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
