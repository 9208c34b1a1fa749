// Package proc runs the programs of a test bed: each with its own log file and
// PID file, stopped by PID, and killed by the kernel when the process that
// started it dies, however it dies.
//
// Reads: nothing. Writes: <dir>/<name>.log and <dir>/<name>.pid.
// Owns: the processes it started.
//
// Guarantees: Stop returns after the process has been reaped; a child never
// outlives its starter (PR_SET_PDEATHSIG, set from a thread that lives as long
// as the process).
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Spec says what to run.
type Spec struct {
	Name string   // names the log and PID file
	Path string   // executable
	Args []string // without the program name
	Env  []string // added to the environment of this process
	Dir  string   // where the log and PID file go; also the working directory
	// Survive leaves the process alone when its starter dies: for the
	// cleaner, whose work begins then.
	Survive bool
	// Stdin is handed to the process as its standard input; nil is /dev/null.
	Stdin *os.File
}

// Process is a started program.
type Process struct {
	spec Spec
	cmd  *exec.Cmd
	done chan struct{}
}

// starter is one goroutine locked to an OS thread that is never given back:
// the kernel sends the parent-death signal when the *thread* that forked ends,
// and Go ends threads as it likes.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range work {
			start()
		}
	}()
	return work
})

// Command is a command that no context ends: the programs of a bed end by Stop or with this process, and cleaning must
// also work when all contexts are done.
func Command(name string, args ...string) *exec.Cmd {
	return exec.Command(name, args...) //nolint:noctx // on purpose, see above
}

// Start runs the program. The log file is appended to, so that a restarted
// component keeps its history.
func Start(spec Spec) (*Process, error) {
	if err := os.MkdirAll(spec.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	p := &Process{spec: spec, done: make(chan struct{})}
	logFile, err := os.OpenFile(p.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	defer logFile.Close()
	p.cmd = Command(spec.Path, spec.Args...)
	p.cmd.Dir = spec.Dir
	p.cmd.Env = append(os.Environ(), spec.Env...)
	p.cmd.Stdout, p.cmd.Stderr = logFile, logFile
	if spec.Stdin != nil {
		p.cmd.Stdin = spec.Stdin
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !spec.Survive {
		p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	started := make(chan error, 1)
	starter() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	if err := os.WriteFile(p.pidPath(), []byte(strconv.Itoa(p.PID())), 0o644); err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	go p.reap()
	return p, nil
}

func (p *Process) reap() {
	_ = p.cmd.Wait() // ProcessState tells how it ended
	_ = os.Remove(p.pidPath())
	close(p.done)
}

// PID is the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// LogPath is the file that has the program's output.
func (p *Process) LogPath() string { return filepath.Join(p.spec.Dir, p.spec.Name+".log") }

func (p *Process) pidPath() string { return filepath.Join(p.spec.Dir, p.spec.Name+".pid") }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is how the process ended, -1 if by a signal or if Done isn't closed yet.
func (p *Process) ExitCode() int {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.spec.Name, err)
	}
	return nil
}

// Stop ends the process with SIGTERM, after grace with SIGKILL, and waits for it.
func (p *Process) Stop(grace time.Duration) {
	if p == nil {
		return
	}
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return
	case <-time.After(grace):
	}
	p.Kill()
}

// Kill ends the process with SIGKILL and waits for it.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// WaitReady calls probe until it succeeds, the process ends, or ctx is done.
// Errors carry the end of the program's log.
func (p *Process) WaitReady(ctx context.Context, probe func(context.Context) error) error {
	last := errors.New("never probed")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			// Else it only says that the time is up, which the cause says better.
			last = err
		}
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("%s ended before it was ready (%s); end of %s:\n%s", p.spec.Name, p.cmd.ProcessState,
				p.LogPath(), p.LogTail(2000))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%w); end of %s:\n%s", p.spec.Name, last, context.Cause(ctx),
				p.LogPath(), p.LogTail(2000))
		}
	}
}

// LogTail returns the last n bytes of the log, for error messages.
func (p *Process) LogTail(n int64) string { return Tail(p.LogPath(), n) }

// Tail returns the last n bytes of a file, or why they can't be read.
func Tail(path string, n int64) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}
	size := min(n, info.Size())
	buf := make([]byte, size)
	if _, err := file.ReadAt(buf, info.Size()-size); err != nil {
		return err.Error()
	}
	return string(buf)
}
