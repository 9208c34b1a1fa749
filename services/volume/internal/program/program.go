// Package program runs programs of the node that may hang in the kernel, such as mount and umount.
//
// # Guarantees
//
//   - A call ends with its context, whatever the program does. A program that can't be killed, because it waits in the
//     kernel for a server or a disk, is left behind, and the error says so.
//   - About one thing there is one program at a time: while one that was left behind lives, the next call waits for it.
//     So tries that are repeated for days leave one process and not thousands.
//   - Output is cut at 64 KiB.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dying is how long a killed program has to end, and to close its output.
	dying = 2 * time.Second
	// maxOutput is how much of the output is kept, in bytes.
	maxOutput = 64 << 10
)

// ErrHangs is in the error of a program that could not be killed.
var ErrHangs = errors.New("it waits in the kernel for a server or a disk that does not answer, and can't be killed")

// Runner runs programs. The zero value is ready.
type Runner struct {
	mu sync.Mutex
	// left are closed when the program that was left behind ends, by what it is about.
	left map[string]chan struct{}
}

// Command is what to run.
type Command struct {
	// About is what the program works on: a mount point, a target. Two that are about the same don't run at once.
	About string
	Name  string
	Args  []string
	// Secret are arguments that no error may show.
	Secret []string
}

func (c Command) String() string {
	return c.Strip(strings.Join(append([]string{c.Name}, c.Args...), " "))
}

// Strip takes the secrets out of a text.
func (c Command) Strip(text string) string {
	for _, s := range c.Secret {
		text = strings.ReplaceAll(text, s, "***stripped***")
	}
	return text
}

// Run runs the program and returns what it wrote, to both outputs. The error of a program that ended by itself is an
// exec.ExitError.
func (r *Runner) Run(ctx context.Context, c Command) (string, error) {
	if err := r.wait(ctx, c.About); err != nil {
		return "", fmt.Errorf("%s: %w", c, err)
	}
	var out limited
	cmd := exec.Command(c.Name, c.Args...) //nolint:noctx // whoever waits for it would wait for ever
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = dying
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = cmd.Wait()
	}()
	select {
	case <-ended:
		return out.String(), err
	case <-ctx.Done():
	}
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	timer := time.NewTimer(dying)
	defer timer.Stop()
	select {
	case <-ended:
		return out.String(), fmt.Errorf("%s: killed: %w", c, context.Cause(ctx))
	case <-timer.C:
		r.leave(c.About, ended)
		return out.String(), fmt.Errorf("%s (process %d): %w: %w", c, cmd.Process.Pid, ErrHangs, context.Cause(ctx))
	}
}

// wait waits for the program about the same thing that was left behind.
func (r *Runner) wait(ctx context.Context, about string) error {
	r.mu.Lock()
	left := r.left[about]
	r.mu.Unlock()
	if left == nil {
		return nil
	}
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("an earlier program has not ended: %w: %w", ErrHangs, context.Cause(ctx))
	}
}

func (r *Runner) leave(about string, ended chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == nil {
		r.left = map[string]chan struct{}{}
	}
	r.left[about] = ended
	go func() {
		<-ended
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.left[about] == ended {
			delete(r.left, about)
		}
	}()
}

// limited is a buffer that keeps the beginning of what is written. The program may be left behind while somebody reads.
type limited struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *limited) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(p[:min(len(p), maxOutput-l.b.Len())])
	return len(p), nil
}

func (l *limited) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(l.b.String())
}
