package cri

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version reads the runtime's name and version.
func (c *Client) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	op := operation{name: "Version", metric: "version"}
	// "0.1.0" is what the kubelet sends as its own version of the protocol; runtimes ignore it.
	return do(ctx, c, op, c.runtime.Version, &runtimeapi.VersionRequest{Version: "0.1.0"})
}

// Status reads the runtime's conditions, handlers and features, with its own info where verbose is set.
func (c *Client) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	op := operation{name: "Status", metric: "status"}
	return do(ctx, c, op, c.runtime.Status, &runtimeapi.StatusRequest{Verbose: verbose})
}

// SandboxImage reads which image the runtime makes sandboxes from. No list of containers shows that it is in use, and
// containerd before 1.6.22, such as Debian 12's, doesn't pin it. It is empty where the runtime doesn't tell: containerd
// before 2.0 does.
func (c *Client) SandboxImage(ctx context.Context) (string, error) {
	status, err := c.Status(ctx, true)
	return sandboxImage(status.GetInfo()), err
}

// sandboxImage is the name in the info of a runtime's status.
func sandboxImage(info map[string]string) string {
	var config struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if json.Unmarshal([]byte(info["config"]), &config) != nil {
		return "" // another runtime's configuration is something else
	}
	return config.SandboxImage
}

// RuntimeConfig reads the runtime's configuration, such as its cgroup driver; containerd before 2.0 doesn't offer it.
func (c *Client) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	op := operation{name: "RuntimeConfig", metric: "runtime_config"}
	return do(ctx, c, op, c.runtime.RuntimeConfig, &runtimeapi.RuntimeConfigRequest{})
}

// PodCIDRs returns a function that tells the runtime the ranges of addresses of the node's pods, unless it has told it
// the same before. containerd makes a CNI configuration of them if it has a template of one (conf_template). The
// function may be called from several goroutines. It logs a failure, and the next call tries again.
func (c *Client) PodCIDRs(log *slog.Logger) (tell func(ctx context.Context, cidrs []string)) {
	op := operation{name: "UpdateRuntimeConfig", metric: "update_runtime_config"}
	var mu sync.Mutex
	told := ""
	return func(ctx context.Context, cidrs []string) {
		mu.Lock()
		defer mu.Unlock()
		text := strings.Join(cidrs, ",")
		if text == "" || text == told {
			return
		}
		network := &runtimeapi.NetworkConfig{PodCidr: text}
		_, err := do(ctx, c, op, c.runtime.UpdateRuntimeConfig, &runtimeapi.UpdateRuntimeConfigRequest{
			RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: network},
		})
		switch {
		case err == nil, IsUnimplemented(err):
			told = text
		case ctx.Err() == nil:
			log.Warn("can't tell the runtime the addresses of the node's pods, retrying with the Node's next state",
				"pod_cidrs", text, "error", err)
		}
	}
}

// GetContainerEvents hands every container event to handle, in order, until ctx ends or the
// stream breaks; the error says why and is never nil. A runtime without events answers with an
// error for which IsUnimplemented is true, at once. handle must not block: containerd 2 holds up its
// own calls until a subscriber takes the events.
func (c *Client) GetContainerEvents(ctx context.Context, handle func(*runtimeapi.ContainerEventResponse)) error {
	op := operation{name: "GetContainerEvents", metric: "get_container_events", endpoint: c.endpoint}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := time.Now()
	stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	c.metrics.observe(op.metric, time.Since(begin), failed(ctx, err))
	for err == nil {
		var event *runtimeapi.ContainerEventResponse
		if event, err = stream.Recv(); err == nil {
			handle(event)
		}
	}
	if errors.Is(err, io.EOF) {
		err = ErrStreamEnded
	}
	return newError(ctx, ctx, op, err)
}

// ErrStreamEnded is what a runtime's regular end of the event stream becomes. CRI-O ends it at once where its setting
// enable_pod_events is off, which is so by default.
var ErrStreamEnded = errors.New("the runtime ended the event stream")
