// Package up runs the crew in the foreground: one child process per daemon, or one for all of them.
//
// # Owns
//
// The children. They get SIGTERM when this process stops, and from the kernel when it dies; the pods
// they look after go on running.
//
// # Guarantees
//
//   - The bus starts first and stops last.
//   - A daemon that ends is started again, after 100 ms, doubling to 10 s; the others go on.
//   - A daemon whose executable is missing is started when it is there: kubelot upgrade brings and takes daemons that
//     not every release has.
//   - A reload (Options.Reloads) is passed on to all of them as SIGHUP.
//   - When memory runs out the kernel kills the crew last, if the process may say so (CAP_SYS_RESOURCE).
//   - File descriptors that a daemon has stored (sd_notify's FDSTORE=1) go to its next process, as with systemd.
package up

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/daemon/hangup"
	"kubelot.dev/daemon/memory"
)

// busName is the daemon that the others talk through.
const busName = "bus"

// vital daemons must be there for pods to run; optional ones run while their executables are there.
var (
	vital    = []string{busName, "lease", "pleg", "podsync", "probe", "stats", "status", "volume"}
	optional = []string{"api", "gc", "resource"}
)

// Optional reports whether the crew runs without the daemon, as releases do that didn't have it yet.
func Optional(name string) bool { return slices.Contains(optional, name) }

// Options say what is run, and where its words go.
type Options struct {
	// BinDir holds the executables kubelot-<daemon>.
	BinDir string `json:"binDir"`
	// Args go to every daemon.
	Args []string `json:"args"`
	// Compact runs all daemons in one child, kubelot-compact.
	Compact bool `json:"compact"`
	// Without are daemons that are left out.
	Without []string `json:"without"`
	// BusSocket is where the bus will listen.
	BusSocket string `json:"busSocket"`
	// RunDir is where the daemons' notify sockets are made.
	RunDir string `json:"runDir"`
	// Colours are for a terminal.
	Colours bool `json:"colours"`
	// Reloads are when the daemons are to read their configuration again; nil for never.
	Reloads <-chan struct{} `json:"-"`
	Out     io.Writer       `json:"-"`
}

// Serve is Run for a process that can be told by SIGHUP to have the daemons read their configuration again. It also
// ends when the terminal on stderr, to which it writes, is gone.
func Serve(ctx context.Context, o Options, stderr *os.File, work func(ctx context.Context) error) error {
	if err := protect("/proc/self/oom_score_adj"); err != nil {
		fmt.Fprintf(stderr, "kubelot up: the kernel may kill the crew when memory runs out: %v\n", err)
	}
	memory.ForgoProfile()
	defer memory.Save(ctx, slog.New(slog.DiscardHandler), 1)()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	reloads := make(chan struct{}, 1)
	reload := func() {
		select {
		case reloads <- struct{}{}:
		default: // one is waiting already
		}
	}
	defer hangup.On(stderr, reload, leave)()
	o.Reloads, o.Out = reloads, stderr
	return Run(ctx, o, work)
}

// Run runs the crew until ctx ends and all children have stopped. work runs next to the crew; when it
// returns, the crew is stopped, and its error is Run's.
func Run(ctx context.Context, o Options, work func(ctx context.Context) error) error {
	if err := NotRunning(ctx, o.BusSocket); err != nil {
		return err
	}
	children, err := crew(o)
	if err != nil {
		return err
	}
	busCtx, stopBus := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBus()
	var bus, daemons sync.WaitGroup
	for _, c := range children {
		if c.name == busName || c.name == compactName {
			bus.Go(func() { c.keep(busCtx) })
		}
	}
	awaitSocket(ctx, o.BusSocket)
	crewCtx, stopCrew := context.WithCancel(ctx)
	defer stopCrew()
	for _, c := range children {
		if c.name != busName && c.name != compactName {
			daemons.Go(func() { c.keep(crewCtx) })
		}
	}
	daemons.Go(func() { passOn(crewCtx, o.Reloads, children) })
	err = work(crewCtx)
	stopCrew()
	daemons.Wait()
	stopBus()
	bus.Wait()
	return err
}

// passOn passes reloads on to the children until ctx ends.
func passOn(ctx context.Context, reloads <-chan struct{}, children []*child) {
	for {
		select {
		case <-reloads:
			for _, c := range children {
				c.reload()
			}
		case <-ctx.Done():
			return
		}
	}
}

// compactName is the child that is all daemons in one process. It starts the bus first and stops it last by itself.
const compactName = "compact"

// compact is the crew in one process.
func compact(o Options) ([]*child, error) {
	path := filepath.Join(o.BinDir, "kubelot-"+compactName)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s has no kubelot-%s: build it with make build, or say where it is with --bin-dir",
			o.BinDir, compactName)
	}
	names := slices.DeleteFunc(slices.Concat(vital, optional), func(name string) bool {
		return slices.Contains(o.Without, name)
	})
	args := append([]string{"run", strings.Join(names, ",")}, o.Args...)
	console := &console{out: o.Out, painter: paint.Painter{On: o.Colours}, width: len(compactName)}
	return []*child{{name: compactName, path: path, args: args, runDir: o.RunDir, console: console}}, nil
}

// crew finds the executables.
func crew(o Options) ([]*child, error) {
	if o.Compact {
		return compact(o)
	}
	console := &console{out: o.Out, painter: paint.Painter{On: o.Colours}}
	var children []*child
	var missing []string
	for _, name := range slices.Concat(vital, optional) {
		if slices.Contains(o.Without, name) {
			continue
		}
		path := filepath.Join(o.BinDir, "kubelot-"+name)
		_, err := os.Stat(path)
		switch {
		case err == nil:
			console.width = max(console.width, len(name))
		case !Optional(name):
			missing = append(missing, "kubelot-"+name)
		}
		children = append(children, &child{name: name, path: path, args: o.Args, runDir: o.RunDir, console: console})
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s has no %s: build them with make build, or say where they are with --bin-dir", o.BinDir,
			strings.Join(missing, ", "))
	}
	return children, nil
}

// NotRunning is an error where another crew answers on the bus socket.
func NotRunning(ctx context.Context, socket string) error {
	if !Answers(ctx, socket) {
		return nil
	}
	return fmt.Errorf("a bus already answers at %s: stop that crew first (systemctl stop kubelot.target "+
		"kubelot-compact), or use another --run-dir", socket)
}

// Answers reports whether something accepts connections on the unix socket.
func Answers(ctx context.Context, socket string) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	// The connection was only a knock.
	_ = conn.Close()
	return true
}

const (
	// socketPatience is how long the daemons wait for the bus to listen; after it they start anyway, since they
	// run without it.
	socketPatience = 3 * time.Second
	socketLook     = 5 * time.Millisecond
)

func awaitSocket(ctx context.Context, socket string) {
	ctx, cancel := context.WithTimeout(ctx, socketPatience)
	defer cancel()
	look := time.NewTicker(socketLook)
	defer look.Stop()
	for {
		if Answers(ctx, socket) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}
