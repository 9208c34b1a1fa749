package critest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exit codes of a process that a signal ended.
const (
	killed     = 137
	terminated = 143
)

type container struct {
	id        string
	name      string // reserved
	sandbox   *sandbox
	config    *runtimeapi.ContainerConfig
	resources *runtimeapi.LinuxContainerResources
	state     runtimeapi.ContainerState
	created   time.Time
	started   time.Time
	finished  time.Time
	exitCode  int32
	reason    string
	// stubborn containers ignore the stop signal.
	stubborn bool
	gone     chan struct{} // closed at the exit
}

// CreateContainer implements the CRI.
func (r *Runtime) CreateContainer(_ context.Context,
	req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	box := r.sandboxes[req.GetPodSandboxId()]
	if box == nil {
		return nil, status.Errorf(codes.NotFound, "failed to find sandbox id %q: not found", req.GetPodSandboxId())
	}
	if image := req.GetConfig().GetImage().GetImage(); r.image(image) == nil {
		return nil, status.Errorf(codes.NotFound, "failed to resolve image %q: not found", image)
	}
	meta, pod := req.GetConfig().GetMetadata(), box.config.GetMetadata()
	id := r.id()
	name := fmt.Sprintf("%s_%s_%s_%s_%d", meta.GetName(), pod.GetName(), pod.GetNamespace(),
		pod.GetUid(), meta.GetAttempt())
	if err := r.reserve("container", name, id); err != nil {
		return nil, err
	}
	c := &container{
		id: id, name: name, sandbox: box, config: req.GetConfig(), resources: req.GetConfig().GetLinux().GetResources(),
		state: runtimeapi.ContainerState_CONTAINER_CREATED, created: time.Now(), gone: make(chan struct{}),
	}
	r.containers[id] = c
	box.containers = append(box.containers, c)
	r.emit(id, box.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// StartContainer implements the CRI.
func (r *Runtime) StartContainer(_ context.Context,
	req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.find(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return nil, fmt.Errorf("failed to set starting state for container %q: container is in %s state", c.id, c.state)
	}
	if c.sandbox.state != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil, fmt.Errorf("sandbox container %q is not running", c.sandbox.id)
	}
	if err := r.createLog(c); err != nil {
		return nil, err
	}
	c.state, c.started = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now()
	r.emit(c.id, c.sandbox.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if code, ends := endsAtOnce(append(slices.Clone(c.config.GetCommand()), c.config.GetArgs()...)); ends {
		r.exit(c, code, "")
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// createLog makes the container's log file, where the runtime does so.
func (r *Runtime) createLog(c *container) error {
	if !r.logs || c.logPath() == "" {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(c.logPath()), 0o755)
	if err == nil {
		err = os.WriteFile(c.logPath(), nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("failed to create container log: %w", err)
	}
	return nil
}

func (c *container) logPath() string {
	return filepath.Join(c.sandbox.config.GetLogDirectory(), c.config.GetLogPath())
}

// endsAtOnce knows the few commands that the fake runs.
func endsAtOnce(command []string) (code int32, ends bool) {
	switch line := strings.Join(command, " "); {
	case line == "true":
		return 0, true
	case line == "false":
		return 1, true
	case strings.HasPrefix(line, "sh -c exit "):
		n, err := strconv.ParseInt(line[len("sh -c exit "):], 10, 32)
		return int32(n), err == nil
	}
	return 0, false
}

// StopContainer implements the CRI.
func (r *Runtime) StopContainer(ctx context.Context,
	req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	r.mu.Lock()
	c := r.containers[req.GetContainerId()]
	if c == nil || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		r.mu.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if !c.stubborn && req.GetTimeout() > 0 {
		r.exit(c, terminated, "")
	}
	r.mu.Unlock()
	timer := time.NewTimer(time.Duration(req.GetTimeout()) * time.Second)
	defer timer.Stop()
	select {
	case <-c.gone:
		return &runtimeapi.StopContainerResponse{}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exit(c, killed, "")
	return &runtimeapi.StopContainerResponse{}, nil
}

// Exit ends a running container's process with a code and, for 0 and others, containerd's reason unless one is given.
func (r *Runtime) Exit(id string, code int32, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.exit(c, code, reason)
	}
}

// Stubborn makes a container ignore its stop signal.
func (r *Runtime) Stubborn(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		c.stubborn = true
	}
}

// exit ends a container that runs. The caller holds the lock.
func (r *Runtime) exit(c *container, code int32, reason string) {
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.state, c.finished, c.exitCode, c.reason = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now(), code, reason
	switch {
	case reason != "":
	case code == 0:
		c.reason = "Completed"
	default:
		c.reason = "Error"
	}
	close(c.gone)
	r.emit(c.id, c.sandbox.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// RemoveContainer implements the CRI.
func (r *Runtime) RemoveContainer(_ context.Context,
	req *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[req.GetContainerId()]; c != nil {
		r.exit(c, killed, "")
		r.remove(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (r *Runtime) remove(c *container) {
	delete(r.containers, c.id)
	c.sandbox.containers = slices.DeleteFunc(c.sandbox.containers, func(other *container) bool { return other == c })
	r.release(c.name, c.id)
	r.emit(c.id, c.sandbox.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// ListContainers implements the CRI.
func (r *Runtime) ListContainers(_ context.Context,
	req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	filter := req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListContainersResponse{}
	for id, c := range r.containers {
		wrongState := filter.GetState() != nil && filter.GetState().GetState() != c.state
		wrongSandbox := filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandbox.id
		if wrongState || wrongSandbox || (filter.GetId() != "" && filter.GetId() != id) ||
			!matches(c.config.GetLabels(), filter.GetLabelSelector()) {
			continue
		}
		imageID := r.image(c.config.GetImage().GetImage()).GetId()
		resp.Containers = append(resp.Containers, &runtimeapi.Container{
			Id: id, PodSandboxId: c.sandbox.id, Metadata: c.config.GetMetadata(), Image: c.config.GetImage(),
			ImageRef: imageID, ImageId: imageID, State: c.state, CreatedAt: c.created.UnixNano(),
			Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		})
	}
	slices.SortFunc(resp.Containers, func(a, b *runtimeapi.Container) int { return strings.Compare(a.GetId(), b.GetId()) })
	return resp, nil
}

// ContainerStatus implements the CRI.
func (r *Runtime) ContainerStatus(_ context.Context,
	req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.find(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: r.status(c)}, nil
}

func (r *Runtime) status(c *container) *runtimeapi.ContainerStatus {
	image := r.image(c.config.GetImage().GetImage())
	result := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.GetMetadata(), State: c.state, CreatedAt: c.created.UnixNano(),
		ExitCode: c.exitCode, Reason: c.reason, Image: c.config.GetImage(), ImageId: image.GetId(),
		Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(), Mounts: c.config.GetMounts(),
		LogPath:    c.logPath(),
		Resources:  &runtimeapi.ContainerResources{Linux: c.resources},
		StopSignal: runtimeapi.Signal_SIGTERM,
	}
	if digests := image.GetRepoDigests(); len(digests) > 0 {
		result.ImageRef = digests[0]
	}
	if !c.started.IsZero() {
		result.StartedAt = c.started.UnixNano()
	}
	if !c.finished.IsZero() {
		result.FinishedAt = c.finished.UnixNano()
	}
	return result
}

// UpdateContainerResources implements the CRI.
func (r *Runtime) UpdateContainerResources(_ context.Context,
	req *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.find(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	c.resources = req.GetLinux()
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// ReopenContainerLog implements the CRI.
func (r *Runtime) ReopenContainerLog(_ context.Context,
	req *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.running(req.GetContainerId())
	if err != nil {
		return nil, fmt.Errorf("container %q is not running: %w", c.getID(), err)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// ExecSync implements the CRI for the commands that the fake knows; others print themselves and exit with 0.
func (r *Runtime) ExecSync(_ context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.running(req.GetContainerId()); err != nil {
		return nil, fmt.Errorf("failed to exec in container: %w", err)
	}
	command := req.GetCmd()
	if code, ends := endsAtOnce(command); ends {
		return &runtimeapi.ExecSyncResponse{ExitCode: code}, nil
	}
	if len(command) > 1 && command[0] == "echo" {
		command = command[1:]
	}
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(strings.Join(command, " ") + "\n")}, nil
}

func (c *container) getID() string {
	if c == nil {
		return ""
	}
	return c.id
}

func (r *Runtime) find(id string) (*container, error) {
	c := r.containers[id]
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", id)
	}
	return c, nil
}

func (r *Runtime) running(id string) (*container, error) {
	c, err := r.find(id)
	if err == nil && c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return c, fmt.Errorf("container is in %s state", c.state)
	}
	return c, err
}
