// Package baseline measures what the container runtime itself takes for pods: the
// CRI calls that no node agent can avoid, made by a bare client with the
// contents that the kubelet gives them.
//
// Reads and writes: the CRI socket. Owns: the pods it creates.
//
// Guarantees: a pod that was measured is gone afterwards.
package baseline

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/bench/measure"
)

// stopTimeout is a pod's default grace period in seconds.
const stopTimeout = 30

// Options say what the pods are like.
type Options struct {
	Image        string // must be there already; its process must end at once on SIGTERM
	CgroupParent string
	LogDir       string
}

// Client makes the calls.
type Client struct {
	opts    Options
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient

	mu    sync.Mutex
	calls map[string]measure.Sample
}

// Dial connects to a CRI socket, such as /run/containerd/containerd.sock.
func Dial(socket string, opts Options) (*Client, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	return &Client{
		opts: opts, conn: conn, runtime: runtimeapi.NewRuntimeServiceClient(conn),
		calls: map[string]measure.Sample{},
	}, nil
}

// Close disconnects.
func (c *Client) Close() { _ = c.conn.Close() }

// Pod is a running pod with one container.
type Pod struct {
	sandbox   string
	container string
}

// Container is the container's ID.
func (p Pod) Container() string { return p.container }

// Start makes the three calls after which the pod runs.
func (c *Client) Start(ctx context.Context, name string) (Pod, error) {
	files, err := c.files(name)
	if err != nil {
		return Pod{}, err
	}
	config := c.sandbox(name, files)
	var p Pod
	err = c.timed("RunPodSandbox", func() error {
		answer, err := c.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
		p.sandbox = answer.GetPodSandboxId()
		return err
	})
	if err != nil {
		return p, fmt.Errorf("run sandbox of %s: %w", name, err)
	}
	err = c.timed("CreateContainer", func() error {
		answer, err := c.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
			PodSandboxId: p.sandbox, Config: c.container(name, files), SandboxConfig: config,
		})
		p.container = answer.GetContainerId()
		return err
	})
	if err != nil {
		return p, fmt.Errorf("create container of %s: %w", name, err)
	}
	err = c.timed("StartContainer", func() error {
		_, err := c.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: p.container})
		return err
	})
	if err != nil {
		return p, fmt.Errorf("start container of %s: %w", name, err)
	}
	return p, nil
}

// Stop makes the calls after which nothing of the pod is left.
func (c *Client) Stop(ctx context.Context, p Pod) error {
	if p.container != "" {
		err := c.timed("StopContainer", func() error {
			_, err := c.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{
				ContainerId: p.container,
				Timeout:     stopTimeout,
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("stop container %s: %w", p.container, err)
		}
	}
	err := c.timed("StopPodSandbox", func() error {
		_, err := c.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.sandbox})
		return err
	})
	if err != nil {
		return fmt.Errorf("stop sandbox %s: %w", p.sandbox, err)
	}
	err = c.timed("RemovePodSandbox", func() error {
		_, err := c.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.sandbox})
		return err
	})
	if err != nil {
		return fmt.Errorf("remove sandbox %s: %w", p.sandbox, err)
	}
	return nil
}

func (c *Client) timed(call string, do func() error) error {
	begin := time.Now()
	err := do()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[call] = append(c.calls[call], time.Since(begin))
	return err
}
