package critest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type sandbox struct {
	id      string
	name    string // reserved
	config  *runtimeapi.PodSandboxConfig
	handler string
	state   runtimeapi.PodSandboxState
	created time.Time
	ip      string
	// containers are in the order of their creation.
	containers []*container
}

// RunPodSandbox implements the CRI.
func (r *Runtime) RunPodSandbox(_ context.Context,
	req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	meta := req.GetConfig().GetMetadata()
	if meta == nil {
		return nil, status.Error(codes.InvalidArgument, "sandbox config must include metadata")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.id()
	name := fmt.Sprintf("%s_%s_%s_%d", meta.GetName(), meta.GetNamespace(), meta.GetUid(), meta.GetAttempt())
	if err := r.reserve("sandbox", name, id); err != nil {
		return nil, err
	}
	box := &sandbox{
		id: id, name: name, config: req.GetConfig(), handler: req.GetRuntimeHandler(), created: time.Now(),
		state: runtimeapi.PodSandboxState_SANDBOX_READY, ip: address(r.nextID),
	}
	r.sandboxes[id] = box
	r.emit(id, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	r.emit(id, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// address is the pod address of the sandbox with that number: a million of them have one each.
func address(number int) string {
	const perNet = 250
	return fmt.Sprintf("10.%d.%d.%d", 88+number/perNet/perNet%16, number/perNet%perNet, number%perNet+1)
}

// StopPodSandbox implements the CRI.
func (r *Runtime) StopPodSandbox(_ context.Context,
	req *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if box := r.sandboxes[req.GetPodSandboxId()]; box != nil {
		r.stopSandbox(box)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// stopSandbox stops a sandbox and what runs in it. The caller holds the lock.
func (r *Runtime) stopSandbox(box *sandbox) {
	for _, c := range box.containers {
		r.exit(c, killed, "")
	}
	if box.state == runtimeapi.PodSandboxState_SANDBOX_READY {
		box.state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		r.emit(box.id, box.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// KillSandbox makes a sandbox not ready, as when its pause process dies.
func (r *Runtime) KillSandbox(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if box := r.sandboxes[id]; box != nil {
		r.stopSandbox(box)
	}
}

// RemovePodSandbox implements the CRI.
func (r *Runtime) RemovePodSandbox(_ context.Context,
	req *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	box := r.sandboxes[req.GetPodSandboxId()]
	if box == nil {
		r.mu.Unlock()
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	r.stopSandbox(box)
	for _, c := range slices.Clone(box.containers) {
		r.remove(c)
	}
	// containerd says so before it does so.
	r.emit(box.id, box.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	r.mu.Unlock()
	<-time.After(deleteLag)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sandboxes, box.id)
	r.release(box.name, box.id)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// deleteLag is how long a removed sandbox is still listed after its event.
const deleteLag = 3 * time.Millisecond

// PodSandboxStatus implements the CRI.
func (r *Runtime) PodSandboxStatus(_ context.Context,
	req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	box := r.sandboxes[req.GetPodSandboxId()]
	if box == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find sandbox: not found: %q",
			req.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: box.status()}, nil
}

func (box *sandbox) status() *runtimeapi.PodSandboxStatus {
	result := &runtimeapi.PodSandboxStatus{
		Id: box.id, Metadata: box.config.GetMetadata(), State: box.state, CreatedAt: box.created.UnixNano(),
		Network: &runtimeapi.PodSandboxNetworkStatus{},
		Labels:  box.config.GetLabels(), Annotations: box.config.GetAnnotations(), RuntimeHandler: box.handler,
	}
	options := box.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	result.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: options}}
	if options.GetNetwork() != runtimeapi.NamespaceMode_NODE {
		result.Network.Ip = box.ip
	}
	return result
}

// ListPodSandbox implements the CRI.
func (r *Runtime) ListPodSandbox(_ context.Context,
	req *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	filter := req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListPodSandboxResponse{}
	for id, box := range r.sandboxes {
		wrongState := filter.GetState() != nil && filter.GetState().GetState() != box.state
		if wrongState || (filter.GetId() != "" && filter.GetId() != id) ||
			!matches(box.config.GetLabels(), filter.GetLabelSelector()) {
			continue
		}
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
			Id: id, Metadata: box.config.GetMetadata(), State: box.state, CreatedAt: box.created.UnixNano(),
			Labels: box.config.GetLabels(), Annotations: box.config.GetAnnotations(), RuntimeHandler: box.handler,
		})
	}
	slices.SortFunc(resp.Items, func(a, b *runtimeapi.PodSandbox) int { return strings.Compare(a.GetId(), b.GetId()) })
	return resp, nil
}

// matches reports whether all has every label of the selector.
func matches(all, selector map[string]string) bool {
	for name, value := range selector {
		if got, ok := all[name]; !ok || got != value {
			return false
		}
	}
	return true
}
