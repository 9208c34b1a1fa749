// Package scripted runs the fake container runtime of cri/critest as a process of its own, at the socket where a
// test bed has its containerd: a node agent runs thousands of pods on it that start no process.
//
// Reads: .bin, the bed. Writes: the bed's logs, and those of the containers, which are empty. Owns: the process.
//
// Guarantees: Start returns when the CRI answers; every image is there as soon as it is pulled.
package scripted

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/testbed/tools"
)

// startTimeout is for a busy machine.
const startTimeout = time.Minute

// Runtime is a running scripted runtime.
type Runtime struct {
	process *proc.Process
	conn    *grpc.ClientConn
}

// Start builds the program if necessary and runs it.
func Start(ctx context.Context, b *bed.Bed, box *tools.Box) (*Runtime, error) {
	program, err := box.EnsureScriptedCRI(ctx)
	if err != nil {
		return nil, err
	}
	socket := b.CRISocket()
	process, err := proc.Start(proc.Spec{
		Name: "scripted-cri", Path: program, Args: []string{"--socket=" + socket}, Dir: b.Logs(),
	})
	if err != nil {
		return nil, err
	}
	r := &Runtime{process: process}
	if r.conn, err = grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		r.Kill()
		return nil, fmt.Errorf("connect to the scripted runtime: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("waited %v", startTimeout))
	defer cancel()
	err = process.WaitReady(ctx, func(ctx context.Context) error {
		r.conn.ResetConnectBackoff()
		_, err := r.Client().Version(ctx, &runtimeapi.VersionRequest{})
		return err
	})
	if err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// Client is a CRI client of it.
func (r *Runtime) Client() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(r.conn)
}

// PID of the process.
func (r *Runtime) PID() int { return r.process.PID() }

// Kill ends it, and every sandbox and container with it.
func (r *Runtime) Kill() {
	if r.conn != nil {
		_ = r.conn.Close()
	}
	r.process.Kill()
}
