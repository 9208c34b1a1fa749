package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri"
	"kubelot.dev/cri/expand"
)

const (
	// answerTime is how much longer than the command itself the runtime may take: to start it, and to kill it.
	answerTime = 10 * time.Second
	// aliveTime is how long the runtime may take to say that it is there.
	aliveTime = 2 * time.Second
	// endlessTime is how long the end of a command that has failed is waited for. Until then it isn't run again.
	endlessTime = time.Hour
)

// outcome is how a call of ExecSync ended.
type outcome struct {
	answer *runtimeapi.ExecSyncResponse
	err    error
	took   time.Duration
}

// endless counts the calls under way of commands that the runtime has not ended in time, by container and command.
type endless struct {
	mu    sync.Mutex
	calls map[string]int
	work  sync.WaitGroup
}

// has takes a function, since there is hardly ever anything to look for, and runs are many.
func (e *endless) has(key func() string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.calls) > 0 && e.calls[key()] > 0
}

func (e *endless) add(key string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls[key] += n; e.calls[key] == 0 {
		delete(e.calls, key)
	}
}

// Wait waits for the commands that have not ended in time, once the contexts of their runs have ended.
func (c *Checker) Wait() { c.endless.work.Wait() }

// runExec runs a command in the container. References to variables with literal values are expanded. A command that the
// runtime doesn't end has failed, as if the runtime had ended it. So it has each time until it ends.
func (c *Checker) runExec(ctx context.Context, t Target, words []string, timeout time.Duration) (Result, error) {
	command := expanded(words, t.Container.Env)
	timedOut := func() Result {
		return failure("command timed out: %q timed out after %s", strings.Join(command, " "), timeout)
	}
	key := func() string { return t.ContainerID + "\x00" + strings.Join(command, "\x00") }
	if c.endless.has(key) {
		return timedOut(), nil
	}
	// The call has a goroutine of its own (docs/adr/0014): it may outlive the run.
	callCtx, cancel := context.WithTimeout(ctx, timeout+endlessTime)
	ended := make(chan outcome, 1)
	c.endless.work.Go(func() {
		began := time.Now()
		answer, err := c.exec.ExecSync(callCtx, t.ContainerID, command, timeout)
		ended <- outcome{answer, err, time.Since(began)}
	})
	late := time.NewTimer(timeout + answerTime)
	defer late.Stop()
	var silence error
	select {
	case o := <-ended:
		cancel()
		return o.result(ctx, timeout, timedOut)
	case <-late.C:
		silence = c.alive(ctx)
	}
	select {
	case o := <-ended: // this process may have been frozen
		cancel()
		return o.result(ctx, timeout, timedOut)
	default:
	}
	if silence != nil {
		cancel()
		return Result{}, RuntimeError{Cause: fmt.Errorf("the runtime did not end a command in container %s within %s after "+
			"its timeout of %s, and does not answer; see whether it hangs (its log, crictl info): %w",
			t.ContainerID, answerTime, timeout, silence)}
	}
	which := key()
	c.endless.add(which, 1)
	c.endless.work.Go(func() {
		defer cancel()
		<-ended
		c.endless.add(which, -1)
	})
	return timedOut(), nil
}

// alive is an error if the runtime doesn't answer at all.
func (c *Checker) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aliveTime)
	defer cancel()
	_, err := c.exec.Version(ctx)
	return err
}

// result is what the call's end says of the probe; timedOut is the result of a command whose time is over.
func (o outcome) result(ctx context.Context, timeout time.Duration, timedOut func() Result) (Result, error) {
	err := o.err
	switch {
	case err == nil:
		output := clip(string(o.answer.GetStdout()) + string(o.answer.GetStderr()))
		return Result{Success: o.answer.GetExitCode() == 0, Output: output}, nil
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case cri.IsDeadline(err) && o.took < timeout:
		// It is another limit: containerd gives a shim 2 s to say how its task is. The command may not have run.
		return Result{}, RuntimeError{Cause: err}
	case cri.IsDeadline(err):
		// That the command's own time is over is the runtime's answer.
		return timedOut(), nil
	case cri.IsUnavailable(err):
		return Result{}, RuntimeError{Cause: err}
	}
	if call := (*cri.Error)(nil); errors.As(err, &call) {
		// An Event names the container already; the rest is the runtime's answer as the kubelet shows it.
		err = call.Unwrap()
	}
	return Result{}, err
}

// expanded are the words with their references to variables replaced. As with the kubelet, one whose value comes from
// elsewhere is empty.
func expanded(words []string, env []corev1.EnvVar) []string {
	if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(word, "$") }) {
		return words
	}
	literal := map[string]string{}
	for _, v := range env {
		literal[v.Name] = v.Value
	}
	command := make([]string, len(words))
	for i, word := range words {
		command[i] = expand.References(word, func(name string) (string, bool) {
			value, ok := literal[name]
			return value, ok
		})
	}
	return command
}
