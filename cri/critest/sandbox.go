package critest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type sandbox struct {
	id      string
	config  *runtimeapi.PodSandboxConfig
	handler string
	state   runtimeapi.PodSandboxState
	created time.Time
	ip      string
}

// RunPodSandbox implements the CRI.
func (r *Runtime) RunPodSandbox(_ context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
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
		id: id, config: req.GetConfig(), handler: req.GetRuntimeHandler(), created: time.Now(),
		state: runtimeapi.PodSandboxState_SANDBOX_READY, ip: fmt.Sprintf("10.88.%d.%d", r.nextID/250, r.nextID%250+1),
	}
	r.sandboxes[id] = box
	r.emit(id, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	r.emit(id, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// StopPodSandbox implements the CRI.
func (r *Runtime) StopPodSandbox(_ context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if box := r.sandboxes[req.GetPodSandboxId()]; box != nil {
		r.stopSandbox(box)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// stopSandbox stops a sandbox and what runs in it. The caller holds the lock.
func (r *Runtime) stopSandbox(box *sandbox) {
	for _, c := range r.containersOf(box.id) {
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
func (r *Runtime) RemovePodSandbox(_ context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	box := r.sandboxes[req.GetPodSandboxId()]
	if box == nil {
		r.mu.Unlock()
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	r.stopSandbox(box)
	for _, c := range r.containersOf(box.id) {
		r.remove(c)
	}
	// containerd says so before it does so.
	r.emit(box.id, box.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	r.mu.Unlock()
	<-time.After(deleteLag)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sandboxes, box.id)
	r.release(box.id)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// deleteLag is how long a removed sandbox is still listed after its event.
const deleteLag = 3 * time.Millisecond

// PodSandboxStatus implements the CRI.
func (r *Runtime) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	box := r.sandboxes[req.GetPodSandboxId()]
	if box == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find sandbox: not found: %q", req.GetPodSandboxId())
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
func (r *Runtime) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	filter := req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListPodSandboxResponse{}
	for _, id := range slices.Sorted(maps.Keys(r.sandboxes)) {
		box := r.sandboxes[id]
		wrongState := filter.GetState() != nil && filter.GetState().GetState() != box.state
		if wrongState || (filter.GetId() != "" && filter.GetId() != id) || !matches(box.config.GetLabels(), filter.GetLabelSelector()) {
			continue
		}
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
			Id: id, Metadata: box.config.GetMetadata(), State: box.state, CreatedAt: box.created.UnixNano(),
			Labels: box.config.GetLabels(), Annotations: box.config.GetAnnotations(), RuntimeHandler: box.handler,
		})
	}
	return resp, nil
}

// matches tells whether all has every label of the selector.
func matches(all, selector map[string]string) bool {
	for name, value := range selector {
		if got, ok := all[name]; !ok || got != value {
			return false
		}
	}
	return true
}
