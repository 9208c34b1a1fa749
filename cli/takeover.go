package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/handover"
	"kubelot.dev/cli/internal/running"
	"kubelot.dev/cli/internal/takeover"
	"kubelot.dev/daemon/config"
)

// defaultFlags is the file with the flags of the units.
const defaultFlags = "/etc/default/kubelot"

// takeoverOptions are the flags of kubelot takeover.
type takeoverOptions struct {
	rootDir, runDir, binDir string
	check, foreground       bool
	patience                time.Duration
	output                  string
	stdout, stderr          *os.File
}

func takeoverCommand(stdout, stderr *os.File) *cobra.Command {
	o := takeoverOptions{stdout: stdout, stderr: stderr}
	c := &cobra.Command{
		Use:   "takeover",
		Short: "Take the node over from the running kubelet: no container restarts, no pod turns not Ready.",
		Long: `Checks the running kubelet: its flags and configuration, and what its pods use. Then it stops the kubelet and
starts kubelot in its place with the kubelet's flags: kubelot.target with systemd, or the crew as child processes
of this command with --foreground. If the crew isn't healthy in time, or it is interrupted before, it starts the
kubelet again. It goes on if the terminal is closed.

Exit codes: 0 if kubelot has the node, or with --check could have it; 1 if the kubelet goes on.`,
		Example: `  kubelot takeover --check
  kubelot takeover --check -o json | jq -r '.findings[] | select(.stops) | .text'
  kubelot takeover`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			defer outlive()()
			return o.run(c.Context())
		},
	}
	flags := c.Flags()
	flags.BoolVar(&o.check, "check", false, "only check, and print what would change")
	flags.BoolVar(&o.foreground, "foreground", false, "run the crew in the foreground, on a machine without systemd")
	flags.StringVar(&o.rootDir, "root-dir", config.RootDir, "the kubelet's root directory")
	flags.StringVar(&o.runDir, "run-dir", config.RunDir, "directory for kubelot's sockets and keys")
	flags.StringVar(&o.binDir, "bin-dir", "", "with --foreground: directory of the executables kubelot-<daemon>")
	flags.DurationVar(&o.patience, "patience", time.Minute, "how long the crew may take until it is healthy")
	flags.StringVarP(&o.output, "output", "o", "text", "text or, with --check, json")
	complete(c, "output", []string{"text", "json"})
	return c
}

func (o *takeoverOptions) run(ctx context.Context) error {
	if err := checkOutput(o.output, "text"); err != nil {
		return err
	}
	if o.output == "json" && !o.check {
		return errors.New("-o json: only --check has an answer to write as JSON")
	}
	kubelet, err := takeover.Kubelet(o.rootDir)
	if err != nil {
		return err
	}
	if kubelet.PID == 0 {
		return fmt.Errorf("no kubelet runs with the root directory %s: there is nothing to take over; start kubelot "+
			"(systemctl enable --now kubelot.target, or kubelot up)", o.rootDir)
	}
	kubelet = kubelet.UnderSystemd(ctx)
	flags, resolved, err := parsed(append(slices.Clone(kubelet.Args[1:]), "--run-dir="+o.runDir))
	if err != nil {
		return fmt.Errorf("the kubelet's command line (process %d): %w", kubelet.PID, err)
	}
	if err := o.findings(kubelet, resolved); err != nil || o.check {
		return err
	}
	if o.foreground {
		return o.inForeground(ctx, kubelet, flags)
	}
	return o.withSystemd(ctx, kubelet, flags)
}

// parsed reads a command line as a daemon of the crew does.
func parsed(args []string) (*config.Flags, *config.Config, error) {
	flags := &config.Flags{}
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	flags.Register(set)
	if err := set.Parse(args); err != nil {
		return nil, nil, fmt.Errorf("%w: kubelot has no such flag", err)
	}
	resolved, err := flags.Load()
	return flags, resolved, err
}

// takeoverReport is the answer of a check as JSON.
type takeoverReport struct {
	// OK reports whether kubelot can take the node over.
	OK      bool `json:"ok"`
	Kubelet struct {
		PID        int      `json:"pid"`
		Executable string   `json:"executable"`
		Args       []string `json:"args"`
		Unit       string   `json:"unit,omitempty"`
	} `json:"kubelet"`
	Findings []takeover.Finding `json:"findings"`
}

// findings says what the check has found; an error if that is a reason not to begin.
func (o *takeoverOptions) findings(kubelet takeover.Process, c *config.Config) error {
	found, err := takeover.Check(c)
	if err != nil {
		return err
	}
	stops := 0
	for _, f := range found {
		if f.Stops {
			stops++
		}
	}
	if o.output == "json" {
		report := takeoverReport{OK: stops == 0, Findings: append([]takeover.Finding{}, found...)}
		report.Kubelet.PID, report.Kubelet.Executable = kubelet.PID, kubelet.Executable
		report.Kubelet.Args, report.Kubelet.Unit = kubelet.Args[1:], kubelet.Unit
		err = writeJSON(o.stdout, report)
	} else {
		err = say(o.stdout, findingsText(kubelet, found, stops == 0))
	}
	if stops > 0 {
		err = errors.Join(err, fmt.Errorf("%d reasons not to take the node over; nothing was changed", stops))
	}
	return err
}

func findingsText(kubelet takeover.Process, found []takeover.Finding, ok bool) string {
	lines := []string{fmt.Sprintf("kubelet: process %d, %s", kubelet.PID, kubelet.Executable)}
	for _, f := range found {
		word := "note"
		if f.Stops {
			word = "BAD "
		}
		lines = append(lines, word+" "+f.Text)
	}
	if ok {
		lines = append(lines, "ok   kubelot can take this node over")
	}
	return strings.Join(lines, "\n")
}

// errIll ends a crew that isn't well in time.
var errIll = errors.New("the kubelet goes on")

// inForeground runs the crew as children until ctx ends.
func (o *takeoverOptions) inForeground(ctx context.Context, kubelet takeover.Process, flags *config.Flags) error {
	if kubelet.Unit != "" && onSystemd() {
		return fmt.Errorf("systemd runs the kubelet (%s) and would start it again: leave out --foreground", kubelet.Unit)
	}
	if err := kubelet.Stop(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	fmt.Fprintf(o.stdout, "the kubelet has stopped; the crew starts\n")
	if err := bus.Disown(o.runDir); err != nil {
		fmt.Fprintf(o.stderr, "kubelot: %v\n", err)
		return execute(kubelet.Executable, kubelet.Args)
	}
	taken := false
	crewCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	judged := make(chan struct{})
	go func() {
		defer close(judged)
		if err := takeover.Well(crewCtx, o.patience, o.read); err != nil && crewCtx.Err() == nil {
			stop(fmt.Errorf("%w: %w", errIll, err))
			return
		}
		if taken = crewCtx.Err() == nil; taken {
			fmt.Fprintln(o.stdout, "kubelot has taken the node over")
		}
	}()
	up := upOptions{config: *flags, binDir: o.binDir, busy: true}
	err := up.run(crewCtx, o.stdout, o.stderr)
	if err != nil {
		stop(fmt.Errorf("%w: %w", errIll, err)) // it didn't even start
	}
	stop(fmt.Errorf("%w: the crew was stopped", errIll))
	<-judged
	if taken {
		return err
	}
	fmt.Fprintf(o.stderr, "kubelot: %v\n", context.Cause(crewCtx))
	return execute(kubelet.Executable, kubelet.Args)
}

// execute becomes another program.
func execute(executable string, args []string) error {
	if err := syscall.Exec(executable, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", executable, err)
	}
	return nil
}

func (o *takeoverOptions) read(ctx context.Context) (map[string]topic.DaemonHealth, error) {
	ctx, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	return readHealth(ctx, o.runDir)
}

// withSystemd changes the units. What the kubelet was told by flags must be said to kubelot before.
func (o *takeoverOptions) withSystemd(ctx context.Context, kubelet takeover.Process, flags *config.Flags) error {
	if !onSystemd() || kubelet.Unit == "" {
		return errors.New("systemd doesn't run this kubelet: stop what does, and use --foreground")
	}
	if err := takeover.Readable(ctx, flags.ConfigFile, flags.ConfigDir); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	lasting := context.WithoutCancel(ctx)
	if err := o.takeFlags(lasting, flags, kubelet.Environ()); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	err := takeover.Swap(ctx, o.runDir, kubelet.Unit, takeover.Crew, func(ctx context.Context) error {
		fmt.Fprintf(o.stdout, "%s has stopped; the crew starts\n", kubelet.Unit)
		return takeover.Well(ctx, o.patience, o.read)
	})
	if err != nil {
		return errors.Join(err, takeover.DropFlags(lasting))
	}
	fmt.Fprintln(o.stdout, "kubelot has taken the node over; kubelot handback gives it back")
	return nil
}

// outlive lets this process go on when its terminal is closed, as by a lost SSH connection, or when what reads its
// output ends. Programs that it runs and becomes aren't affected.
func outlive() (stop func()) {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGHUP, syscall.SIGPIPE) //nolint:forbidigo // these end no command's context
	return func() { signal.Stop(ignored) }
}

// takeFlags has the units run with the kubelet's flags, wherever its unit and the drop-ins of kubeadm and others have
// them from, and with its environment's proxies.
func (o *takeoverOptions) takeFlags(ctx context.Context, flags *config.Flags, environ []string) error {
	args := slices.DeleteFunc(flags.Args(), func(arg string) bool { return strings.HasPrefix(arg, "--run-dir=") })
	same, err := sameFlags(defaultFlags, args)
	if err != nil {
		return err
	}
	kept, err := takeover.TakeFlags(ctx, same && !handover.NamesProxies(environ), args, environ)
	if err != nil || !kept {
		return err
	}
	fmt.Fprintf(o.stdout, "the kubelet's flags are in %s now, in place of those in %s\n", takeover.FlagsFile, defaultFlags)
	return nil
}

func onSystemd() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

// sameFlags reports whether the units' file has these flags.
func sameFlags(path string, args []string) (bool, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	var own []string
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "KUBELOT_ARGS="); found {
			own = strings.Fields(strings.Trim(value, `"'`))
		}
	}
	ours, _, err := parsed(own)
	if err != nil {
		return false, nil //nolint:nilerr // flags that can't be read are others than the kubelet's
	}
	return slices.Equal(slices.Sorted(slices.Values(ours.Args())), slices.Sorted(slices.Values(args))), nil
}

func handbackCommand(stdout *os.File) *cobra.Command {
	var runDir, unit string
	c := &cobra.Command{
		Use:   "handback [-- KUBELET flags...]",
		Short: "Give the node back to the kubelet: no container restarts, no pod turns not Ready.",
		Long: `Stops the crew and starts the kubelet. With systemd it starts the kubelet's unit, and waits for ten seconds
whether the kubelet goes on running; if not, or if it is interrupted before, it starts the crew again. Without systemd
it stops kubelot up and executes the given command line of the kubelet. It goes on if the terminal is closed. A kubelet
that starts treats containers younger than ten seconds as new: they aren't ready until their first probe succeeds. So
wait for ten seconds after the last pod has started.

Exit codes: 0 if the kubelet runs; 1 if nothing was changed, or the crew goes on. Without systemd it becomes the
kubelet, and the code is the kubelet's.`,
		Example: "  kubelot handback\n  kubelot handback -- /usr/bin/kubelet --config /var/lib/kubelet/config.yaml",
		RunE: func(c *cobra.Command, args []string) error {
			defer outlive()()
			if len(args) > 0 {
				return becomeKubelet(c.Context(), stdout, runDir, args)
			}
			return startKubelet(c.Context(), stdout, runDir, unit)
		},
	}
	c.Flags().StringVar(&runDir, "run-dir", config.RunDir, "directory with kubelot's sockets and keys")
	c.Flags().StringVar(&unit, "unit", "kubelet.service", "the kubelet's unit")
	return c
}

// becomeKubelet stops the crew in the foreground and runs the kubelet in the place of this process.
func becomeKubelet(ctx context.Context, out io.Writer, runDir string, command []string) error {
	executable, err := filepath.Abs(command[0])
	if err != nil {
		return err
	}
	if info, err := os.Stat(executable); err != nil || info.Mode()&0o111 == 0 {
		return fmt.Errorf("nothing was changed: %s can't be run: name the kubelet's executable", executable)
	}
	up, err := takeover.Up(runDir)
	if err != nil {
		return err
	}
	if up.PID == 0 {
		return fmt.Errorf("no kubelot up runs with the run directory %s: where systemd runs the crew, give no "+
			"command", runDir)
	}
	if err := up.Stop(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	fmt.Fprintln(out, "kubelot has stopped; the kubelet starts")
	return execute(executable, command)
}

// startKubelet changes the units. If the kubelet's doesn't start, the crew goes on.
func startKubelet(ctx context.Context, out io.Writer, runDir, unit string) error {
	if !onSystemd() {
		return errors.New("there is no systemd here: give the kubelet's command line after --")
	}
	if err := running.Systemctl(ctx, "cat", unit); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if err := takeover.Returnable(ctx, runDir, unit); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	err := takeover.Swap(ctx, runDir, takeover.Crew, unit, func(ctx context.Context) error {
		return takeover.Stays(ctx, unit)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s runs; kubelot's pods are its pods now\n", unit)
	return takeover.DropFlags(context.WithoutCancel(ctx))
}
