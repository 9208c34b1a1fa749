package cri

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox creates and starts a sandbox and returns its ID. handler is the RuntimeClass's handler; empty
// means the runtime's default.
func (c *Client) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig,
	handler string,
) (string, error) {
	meta := config.GetMetadata()
	op := operation{
		name: "RunPodSandbox", metric: "run_podsandbox", timeout: 2 * c.timeout,
		object: fmt.Sprintf("%s/%s attempt %d", meta.GetNamespace(), meta.GetName(), meta.GetAttempt()),
	}
	resp, err := do(ctx, c, op, c.runtime.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{
		Config:         config,
		RuntimeHandler: handler,
	})
	return resp.GetPodSandboxId(), c.answered(op, err, resp.GetPodSandboxId())
}

// StopPodSandbox stops the sandbox, kills what runs in it and takes its network down. It may be repeated.
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	op := operation{name: "StopPodSandbox", metric: "stop_podsandbox", object: id, timeout: 2 * c.timeout}
	_, err := do(ctx, c, op, c.runtime.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// RemovePodSandbox removes the sandbox and its containers. It may be repeated.
func (c *Client) RemovePodSandbox(ctx context.Context, id string) error {
	op := operation{name: "RemovePodSandbox", metric: "remove_podsandbox", object: id}
	_, err := do(ctx, c, op, c.runtime.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// PodSandboxStatus reads one sandbox.
func (c *Client) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	op := operation{name: "PodSandboxStatus", metric: "podsandbox_status", object: id}
	resp, err := do(ctx, c, op, c.runtime.PodSandboxStatus, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	return resp.GetStatus(), c.answered(op, err, resp.GetStatus().GetId())
}

// ListPodSandbox lists the sandboxes that match filter; nil means all.
func (c *Client) ListPodSandbox(ctx context.Context,
	filter *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	op := operation{name: "ListPodSandbox", metric: "list_podsandbox"}
	resp, err := do(ctx, c, op, c.runtime.ListPodSandbox, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	return resp.GetItems(), err
}

// UpdatePodSandboxResources tells the runtime what the sandbox's containers may have together, and its overhead, and
// the runtime may refuse it. One that doesn't know the call has nothing to say.
func (c *Client) UpdatePodSandboxResources(ctx context.Context, id string,
	overhead, resources *runtimeapi.LinuxContainerResources,
) error {
	op := operation{name: "UpdatePodSandboxResources", metric: "update_podsandbox_resources", object: id}
	_, err := do(ctx, c, op, c.runtime.UpdatePodSandboxResources, &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: id, Overhead: overhead, Resources: resources,
	})
	if IsUnimplemented(err) || code(err) == codes.Unknown && strings.Contains(err.Error(), "not implemented") {
		return nil // the latter is containerd 2.2's answer
	}
	return err
}

// PortForward prepares a streaming server and returns the URL to connect to.
func (c *Client) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (url string, err error) {
	op := operation{name: "PortForward", metric: "port_forward", object: req.GetPodSandboxId()}
	resp, err := do(ctx, c, op, c.runtime.PortForward, req)
	return resp.GetUrl(), err
}
