package hooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/pause"
)

// Reasons of Events, and of the waiting or terminated state that follows.
const (
	// ReasonFailedPostStart and ReasonFailedPreStop are the Events' reasons.
	ReasonFailedPostStart = "FailedPostStartHook"
	ReasonFailedPreStop   = "FailedPreStopHook"
	// ReasonPostStartError is the waiting reason of a container whose postStart hook failed.
	ReasonPostStartError = "PostStartHookError"
	// ReasonHTTPFallback is the reason of the Event about a hook that asked for HTTPS of a server that speaks HTTP.
	ReasonHTTPFallback = "LifecycleHTTPFallback"
	// MessagePostStart and MessagePreStop are the Events' messages.
	MessagePostStart = "PostStartHook failed"
	MessagePreStop   = "PreStopHook failed"
)

// maxOutput bounds how much of a command's output gets into an error, in bytes: it ends up in the pod's status.
const maxOutput = 4 << 10

// Execer is the part of the CRI client that hooks need.
type Execer interface {
	ExecSync(ctx context.Context, containerID string, command []string, timeout time.Duration) (stdout, stderr []byte,
		exitCode int32, err error)
}

// Target is the container whose hook runs.
type Target struct {
	Pod         *corev1.Pod
	Container   *corev1.Container
	ContainerID string
	// PodIP is the pod's primary address; on the host network the node's.
	PodIP string
}

// Runner runs hooks. Its methods may be called from any goroutine.
type Runner struct {
	// Warn, if set, is called with what the user should know although the hook succeeded: an Event on the pod. It
	// must not block, and must be set before the first Run.
	Warn func(target Target, reason, message string)
	// SleepEnded, where set, is called for a sleep that was ended before its time.
	SleepEnded func()

	exec Execer
	http *http.Client
}

// New makes a Runner.
func New(exec Execer) *Runner { return &Runner{exec: exec, http: newHTTPClient()} }

// Run runs one hook and waits for its end or for that of ctx. The error's text is the status message for the user.
func (r *Runner) Run(ctx context.Context, target Target, hook *corev1.LifecycleHandler) error {
	var what string
	var err error
	output := ""
	switch {
	case hook.Exec != nil:
		what = fmt.Sprintf("Exec lifecycle hook (%v)", hook.Exec.Command)
		output, err = r.runExec(ctx, target, hook.Exec)
		output = fmt.Sprintf(", message: %q", output)
	case hook.HTTPGet != nil:
		what = fmt.Sprintf("HTTP lifecycle hook (%s)", hook.HTTPGet.Path)
		err = r.runHTTP(ctx, target, hook.HTTPGet)
	case hook.Sleep != nil:
		what = fmt.Sprintf("Sleep lifecycle hook (%d)", hook.Sleep.Seconds)
		if err = sleep(ctx, time.Duration(hook.Sleep.Seconds)*time.Second); err != nil && r.SleepEnded != nil {
			r.SleepEnded()
		}
	case hook.TCPSocket != nil:
		return errors.New("cannot run handler: invalid handler: tcpSocket is no lifecycle hook; use exec, httpGet or sleep")
	default:
		return errors.New("cannot run handler: invalid handler: it has none of exec, httpGet and sleep")
	}
	if err == nil {
		return nil
	}
	pod := fmt.Sprintf("%s_%s(%s)", target.Pod.Name, target.Pod.Namespace, target.Pod.UID)
	return fmt.Errorf("%s for Container %q in Pod %q failed - error: %w%s", what, target.Container.Name, pod, err, output)
}

// runExec runs a command in the container. The runtime gets the time that is left, so that it ends the command too.
func (r *Runner) runExec(ctx context.Context, target Target, action *corev1.ExecAction) (output string, err error) {
	var timeout time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), time.Millisecond)
	}
	stdout, stderr, code, err := r.exec.ExecSync(ctx, target.ContainerID, action.Command, timeout)
	output = clip(string(stdout) + string(stderr))
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && code != 0:
		err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(action.Command, " "), code, clip(string(stderr)))
	}
	return output, err
}

func clip(text string) string {
	if len(text) <= maxOutput {
		return text
	}
	return strings.ToValidUTF8(text[:maxOutput], "") + "..."
}

// sleep waits; the end of the container's grace period ends it before its time.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	ends := time.Now().Add(d)
	if pause.For(ctx, d); ctx.Err() != nil && time.Now().Before(ends) {
		return errors.New("container terminated before sleep hook finished")
	}
	return nil
}
