package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/cri"
	"kubelot.dev/cri/expand"
)

// answerTime is how much longer than the command itself the runtime may take: to start it, and to kill it.
const answerTime = 10 * time.Second

// runExec runs a command in the container. References to variables with literal values are expanded.
func (c *Checker) runExec(ctx context.Context, t Target, words []string, timeout time.Duration) (Result, error) {
	command := expanded(words, t.Container.Env)
	callCtx, cancel := context.WithTimeout(ctx, timeout+answerTime)
	defer cancel()
	began := time.Now()
	answer, err := c.exec.ExecSync(callCtx, t.ContainerID, command, timeout)
	switch {
	case err == nil:
		output := clip(string(answer.GetStdout()) + string(answer.GetStderr()))
		return Result{Success: answer.GetExitCode() == 0, Output: output}, nil
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case callCtx.Err() != nil:
		return Result{}, RuntimeError{Cause: fmt.Errorf("the runtime did not end a command in container %s within %s after "+
			"its timeout of %s; see whether it hangs (its log, crictl info)",
			t.ContainerID, answerTime, timeout)}
	case cri.IsDeadline(err) && time.Since(began) < timeout:
		// It is another limit: containerd gives a shim 2 s to say how its task is. The command may not have run.
		return Result{}, RuntimeError{Cause: err}
	case cri.IsDeadline(err):
		// That the command's own time is over is the runtime's answer.
		return failure("command timed out: %q timed out after %s", strings.Join(command, " "), timeout), nil
	case cri.IsUnavailable(err):
		return Result{}, RuntimeError{Cause: err}
	}
	if call := (*cri.Error)(nil); errors.As(err, &call) {
		// An Event names the container already; the rest is the runtime's answer as the kubelet shows it.
		err = call.Unwrap()
	}
	return Result{}, err
}

// expanded are the words with their references to variables that have literal values replaced.
func expanded(words []string, env []corev1.EnvVar) []string {
	if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(word, "$") }) {
		return words
	}
	literal := map[string]string{}
	for _, v := range env {
		if v.ValueFrom == nil {
			literal[v.Name] = v.Value
		}
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
