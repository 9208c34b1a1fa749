package cri

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer creates a container in the sandbox and returns its ID. sandbox is the config the
// sandbox was created with.
func (c *Client) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig,
	sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	pod, meta := sandbox.GetMetadata(), config.GetMetadata()
	op := operation{
		name: "CreateContainer", metric: "create_container",
		object: fmt.Sprintf("%s of %s/%s attempt %d", meta.GetName(), pod.GetNamespace(), pod.GetName(), meta.GetAttempt()),
	}
	resp, err := do(ctx, c, op, c.runtime.CreateContainer,
		&runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox})
	return resp.GetContainerId(), c.answered(op, err, resp.GetContainerId())
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	op := operation{name: "StartContainer", metric: "start_container", object: id}
	_, err := do(ctx, c, op, c.runtime.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer sends the stop signal and, after the grace period (whole seconds, rounded up), SIGKILL.
// It returns when the container has exited, and may be repeated.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	grace = max(grace, 0)
	seconds := int64((grace + time.Second - 1) / time.Second)
	op := operation{name: "StopContainer", metric: "stop_container", object: id, timeout: grace + c.timeout}
	_, err := do(ctx, c, op, c.runtime.StopContainer, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	return err
}

// RemoveContainer removes a container, killing it if it runs. It may be repeated.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	op := operation{name: "RemoveContainer", metric: "remove_container", object: id}
	_, err := do(ctx, c, op, c.runtime.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

// ListContainers lists the containers that match filter; nil means all.
func (c *Client) ListContainers(ctx context.Context,
	filter *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	op := operation{name: "ListContainers", metric: "list_containers"}
	resp, err := do(ctx, c, op, c.runtime.ListContainers, &runtimeapi.ListContainersRequest{Filter: filter})
	return resp.GetContainers(), err
}

// ContainerStatus reads one container.
func (c *Client) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	op := operation{name: "ContainerStatus", metric: "container_status", object: id}
	resp, err := do(ctx, c, op, c.runtime.ContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return resp.GetStatus(), c.answered(op, err, resp.GetStatus().GetId())
}

// UpdateContainerResources changes the resources of a container (in-place resize).
func (c *Client) UpdateContainerResources(ctx context.Context, id string,
	resources *runtimeapi.LinuxContainerResources,
) error {
	op := operation{name: "UpdateContainerResources", metric: "update_container", object: id}
	_, err := do(ctx, c, op, c.runtime.UpdateContainerResources,
		&runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: resources})
	return err
}

// ReopenContainerLog makes the runtime reopen the container's log file after its rotation.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	op := operation{name: "ReopenContainerLog", metric: "reopen_container_log", object: id}
	_, err := do(ctx, c, op, c.runtime.ReopenContainerLog, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// ExecSync runs a command in the container and returns its output and exit code; a code other than 0 is no
// error. timeout is sent in whole seconds, rounded up; without one only ctx ends the command's run.
func (c *Client) ExecSync(ctx context.Context, id string, command []string,
	timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	op := operation{name: "ExecSync", metric: "exec_sync", object: id, timeout: -1}
	if timeout > 0 {
		op.timeout = timeout + c.timeout
	}
	seconds := int64((max(timeout, 0) + time.Second - 1) / time.Second)
	return do(ctx, c, op, c.runtime.ExecSync, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: seconds})
}

// Exec prepares a streaming server for a command and returns the URL to connect to.
func (c *Client) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error) {
	op := operation{name: "Exec", metric: "exec", object: req.GetContainerId()}
	resp, err := do(ctx, c, op, c.runtime.Exec, req)
	return resp.GetUrl(), err
}

// Attach prepares a streaming server for the container's own streams and returns the URL to connect to.
func (c *Client) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (url string, err error) {
	op := operation{name: "Attach", metric: "attach", object: req.GetContainerId()}
	resp, err := do(ctx, c, op, c.runtime.Attach, req)
	return resp.GetUrl(), err
}

// ContainerStats reads the usage of one container.
func (c *Client) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	op := operation{name: "ContainerStats", metric: "container_stats", object: id}
	resp, err := do(ctx, c, op, c.runtime.ContainerStats, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	return resp.GetStats(), err
}

// ListContainerStats reads the usage of the containers that match filter; nil means all.
func (c *Client) ListContainerStats(ctx context.Context,
	filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	op := operation{name: "ListContainerStats", metric: "list_container_stats"}
	resp, err := do(ctx, c, op, c.runtime.ListContainerStats, &runtimeapi.ListContainerStatsRequest{Filter: filter})
	return resp.GetStats(), err
}

// CheckpointContainer writes a checkpoint of the container to location. It may take the time-out of calls, or longer
// where timeout is.
func (c *Client) CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error {
	timeout = max(timeout, c.timeout)
	op := operation{name: "CheckpointContainer", metric: "checkpoint_container", object: id, timeout: timeout}
	_, err := do(ctx, c, op, c.runtime.CheckpointContainer,
		&runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: location, Timeout: int64(timeout / time.Second)})
	return err
}
