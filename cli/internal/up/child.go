package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"kubelot.dev/bus/pause"
)

// stopGrace is how long a child may take to stop before it is killed. Only tests change it.
var stopGrace = 10 * time.Second

// child is one daemon of the crew.
type child struct {
	name    string
	path    string
	args    []string
	runDir  string
	console *console
	// ran is true once the child has been started.
	ran bool
	// notify is what the child speaks to; nil if there can't be any.
	notify *notify

	mu sync.Mutex
	// process is the one that runs; nil while none does.
	process *os.Process
}

// reload has the child read its configuration again. One that begins at this moment, and doesn't know the signal yet,
// ends by it, and begins again with the configuration as it is now.
func (c *child) reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return
	}
	if err := c.process.Signal(syscall.SIGHUP); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.console.line(c.name, fmt.Appendf(nil, "kubelot up: can't pass the reload on: %v", err))
	}
}

func (c *child) runs(p *os.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process = p
}

// keep runs the child until ctx ends, again and again, and returns when it has ended for good.
func (c *child) keep(ctx context.Context) {
	// The kernel ties the death signal to the thread that starts the child, so it must live as long.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.listen()
	defer c.notify.close()
	var delay time.Duration
	for c.awaitExecutable(ctx) {
		began := time.Now()
		err := c.runOnce(ctx)
		if ctx.Err() != nil {
			c.reportStop(err)
			return
		}
		delay = pause.BeforeRestart(delay, time.Since(began))
		c.console.line(c.name, fmt.Appendf(nil, "ended (%v), starting it again in %s", describeEnd(err), delay))
		pause.For(ctx, delay)
	}
}

// executableLook is how often a missing executable is looked for.
const executableLook = 2 * time.Second

// awaitExecutable waits until there is something to run, and reports whether there is before ctx ends.
func (c *child) awaitExecutable(ctx context.Context) bool {
	for said := false; ctx.Err() == nil; pause.For(ctx, executableLook) {
		if _, err := os.Stat(c.path); err == nil {
			return true
		}
		if !said && c.ran {
			c.console.line(c.name, fmt.Appendf(nil, "%s is gone; it is started when the file is there again", c.path))
		}
		said = true
	}
	return false
}

// listen makes the child's notify socket. Without it the child runs as well, as long as it isn't killed.
func (c *child) listen() {
	complain := func(err error) { c.console.line(c.name, fmt.Appendf(nil, "kubelot up: %v", err)) }
	var err error
	if c.notify, err = listen(c.runDir, c.name, complain); err != nil {
		complain(fmt.Errorf("connections will not outlive the daemon if it is killed: %w", err))
	}
}

func (c *child) runOnce(ctx context.Context) error {
	out := &output{console: c.console, name: c.name}
	defer out.flush()
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env, cmd.ExtraFiles = c.notify.inheritance()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	// A group of its own keeps Ctrl-C from the child: kubelot up stops the crew in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	defer c.notify.serve()()
	if err := cmd.Start(); err != nil {
		return err
	}
	c.ran = true
	c.runs(cmd.Process)
	defer c.runs(nil)
	return cmd.Wait()
}

// reportStop says so if the child didn't stop in order.
func (c *child) reportStop(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		c.console.line(c.name, fmt.Appendf(nil, "stopped: %v", err))
	}
}

func describeEnd(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
