package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/bus"
	"kubelot.dev/bus/nats"
	"kubelot.dev/cli/internal/words"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
)

// busPatience is how long a command that needs the bus waits for it. Only tests change it.
var busPatience = 5 * time.Second

// Main runs the command line as this process and ends the process.
func Main() {
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// run takes the whole command line: the name by which the program is called chooses between kubelot and the kubelet.
func run(args []string, stdout, stderr *os.File) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	command := Command(stdout, stderr)
	if filepath.Base(args[0]) == kubeletName {
		command = kubeletCommand(stdout, stderr)
	}
	command.SetArgs(args[1:])
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", command.Name(), words.Lines(err.Error()))
		return exitCode(err)
	}
	return 0
}

// Command is the command `kubelot` with its subcommands; completion comes with cobra.
func Command(stdout, stderr *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubelot",
		Short: "Replaces the Kubernetes kubelet with a crew of small daemons.",
		Example: `  kubelot up --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf
  kubelot pods
  kubelot why default/web-0
  kubelot tap --since 5m
  kubelot doctor`,
		Version:       daemon.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(upCommand(stdout, stderr), downCommand(stdout), tapCommand(stdout), podsCommand(stdout),
		whyCommand(stdout), gcCommand(stdout), shutdownCommand(stdout), doctorCommand(stdout), upgradeCommand(stdout),
		takeoverCommand(stdout, stderr), handbackCommand(stdout), installCommand(stdout), uninstallCommand(stdout),
		configCommand(stdout), replayCommand(stdout), bundleCommand(stdout), imageCommand(stdout),
		claimsCommand(stdout), restartCommand(stdout), retryCommand(stdout), applyCommand(stdout), deleteCommand(stdout),
		topCommand(stdout), uiCommand(stdout), versionCommand(stdout))
	completeNames(root)
	return root
}

func versionCommand(stdout *os.File) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version.",
		Long: `Prints the version of this executable, and with -o json also that of Kubernetes which the node reports. Those of the
daemons that run are in kubelot doctor.

Exit codes: 0, or 1 if the flags are wrong.`,
		Example: "  kubelot version\n  kubelot version -o json | jq -r .kubernetes",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch output {
			case "json":
				return writeJSON(stdout, struct {
					Kubelot    string `json:"kubelot"`
					Kubernetes string `json:"kubernetes"`
					Go         string `json:"go"`
				}{daemon.Version(), KubernetesVersion, runtime.Version()})
			case "text":
				return say(stdout, "kubelot "+daemon.Version())
			}
			return checkOutput(output, "text")
		},
	}
	offerOutput(c, &output, "text")
	return c
}

// busFlags say which bus a command talks to.
type busFlags struct {
	runDir string
	server string
}

func (f *busFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.runDir, "run-dir", config.RunDir, "directory with kubelot's sockets and keys")
	c.Flags().StringVar(&f.server, "server", "",
		"TCP address of a bus that was started with --listen, instead of its socket")
}

// dial connects as the command line's member of the crew.
func (f *busFlags) dial(ctx context.Context) (*bus.Conn, error) {
	key := filepath.Join(f.runDir, "keys", Contract.Daemon+".nk")
	if _, err := os.Stat(key); err != nil {
		if errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("the bus's key %s can't be read: run it as root", key)
		}
		return nil, fmt.Errorf("there is no key of the bus at %s: start the crew (kubelot up, or systemctl start "+
			"kubelot.target) or name its --run-dir", key)
	}
	options := nats.Options{Server: f.server, KeyFile: key, Daemon: Contract.Daemon, Log: slog.New(slog.DiscardHandler)}
	if f.server == "" {
		options.Socket = filepath.Join(f.runDir, "bus.sock")
	}
	transport, err := nats.Dial(ctx, options)
	if err != nil {
		return nil, err
	}
	return bus.NewConn(transport, Contract.Daemon, options.Log), nil
}

// connect is dial for a command that is of no use before the bus answers.
func (f *busFlags) connect(ctx context.Context) (*bus.Conn, error) {
	conn, err := f.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := await(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// await is an error unless the bus is connected soon.
func await(ctx context.Context, conn *bus.Conn) error {
	limited, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	select {
	case _, ok := <-conn.Transport().Connects(limited):
		if ok {
			return nil
		}
	case <-limited.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the bus doesn't answer within %s: is the crew running? (kubelot up, or systemctl status "+
		"kubelot-bus)", busPatience)
}
