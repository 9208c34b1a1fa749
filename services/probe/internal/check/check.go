// Package check runs one probe once.
//
// # Reads and writes
//
// The probe's effects: a command in the container (CRI ExecSync), a request or a connection.
//
// # Guarantees
//
//   - A run ends with the probe's timeout, for a command at the latest when the runtime has had some seconds more to
//     end it. Then the command has failed, unless the runtime doesn't answer at all. It isn't run again before it has
//     ended.
//   - A Result is what the probe has found out; an error, that it could not be run.
//   - No connection is kept. An answer's body gets into a Result only where it is a redirect's, at most 10 KiB.
//
// Source: Kubernetes API reference, Probe; KEP-2727 (grpc). The outputs' words are the kubelet's: they show in Events.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri/handler"
)

// maxOutput bounds a Result's output, in bytes.
const maxOutput = 10 << 10

// Result is what a run has found out.
type Result struct {
	Success bool
	// Warning says that a success needs an Event.
	Warning bool
	Output  string
}

func failure(format string, args ...any) Result { return Result{Output: fmt.Sprintf(format, args...)} }

// RuntimeError is a container runtime that can't be reached or doesn't answer.
type RuntimeError struct{ Cause error }

func (e RuntimeError) Error() string { return e.Cause.Error() }

// Unwrap gives the cause.
func (e RuntimeError) Unwrap() error { return e.Cause }

// Execer is the part of the CRI client that exec probes need.
type Execer interface {
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
}

// Target is what is probed.
type Target struct {
	handler.Target
	ContainerID string
}

// Checker runs probes. Its methods may be called from any goroutine.
type Checker struct {
	exec      Execer
	transport *http.Transport
	endless   endless
}

// New makes a Checker.
func New(exec Execer) *Checker {
	transport := handler.Transport()
	transport.DialContext = dialer().DialContext
	transport.ForceAttemptHTTP2 = true
	transport.DisableCompression = true
	return &Checker{exec: exec, transport: transport, endless: endless{calls: map[string]int{}}}
}

// dialer makes connections that don't stay in TIME_WAIT for a minute: with many probes they would use up the ports.
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		}), err)
	}}
}

// Run runs a probe once.
func (c *Checker) Run(ctx context.Context, t Target, spec *corev1.Probe) (Result, error) {
	timeout := time.Duration(max(cmp.Or(spec.TimeoutSeconds, 1), 1)) * time.Second
	switch {
	case spec.Exec != nil:
		return c.runExec(ctx, t, spec.Exec.Command, timeout)
	case spec.HTTPGet != nil:
		return c.runHTTP(ctx, t, spec.HTTPGet, timeout)
	case spec.TCPSocket != nil:
		return runTCP(ctx, t, spec.TCPSocket, timeout)
	case spec.GRPC != nil:
		return runGRPC(ctx, t, spec.GRPC, timeout)
	}
	return Result{}, fmt.Errorf("missing probe handler for container %s: give it one of exec, httpGet, tcpSocket and grpc",
		t.Container.Name)
}

func clip(text string) string {
	if len(text) <= maxOutput {
		return text
	}
	return strings.ToValidUTF8(text[:maxOutput], "")
}
