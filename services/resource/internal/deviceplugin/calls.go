package deviceplugin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// maxAllocation bounds a plugin's answer about a container: it is kept on disk and goes over the bus.
const maxAllocation = 1 << 20

// Options are what the plugin of the resource wants to be asked, also while it is away. The flag is false where there
// was none.
func (s *Server) Options(resource string) (Options, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	options, known := s.options[resource]
	return options, known
}

// Preferred asks the plugin which of the available devices it prefers for a container that gets so many, among them
// those that it must. A plugin that can't be asked prefers none. Errors are ErrAway, ErrSlow, or the plugin's.
func (s *Server) Preferred(ctx context.Context, resource string, available, must []string, size int) ([]string, error) {
	p, err := s.plugin(resource)
	if err != nil || !p.options.Preferred {
		return nil, err
	}
	request := &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(size),
		}},
	}
	type response = *pluginapi.PreferredAllocationResponse
	limit := s.limits.preferred
	answer, err := call(ctx, p, "GetPreferredAllocation", limit, func(ctx context.Context) (response, error) {
		return p.api.GetPreferredAllocation(ctx, request)
	})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(answer.GetContainerResponses()) == 0 {
		return nil, nil
	}
	return answer.GetContainerResponses()[0].GetDeviceIDs(), nil
}

// Allocate tells the plugin that a container gets the devices. The answer is what Merge takes and what the checkpoint
// has: a ContainerAllocateResponse in protobuf's encoding. Errors are ErrAway, ErrSlow, or the plugin's.
func (s *Server) Allocate(ctx context.Context, resource string, ids []string) ([]byte, error) {
	p, err := s.plugin(resource)
	if err != nil {
		return nil, err
	}
	request := &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	}
	type response = *pluginapi.AllocateResponse
	begun := time.Now()
	answer, err := call(ctx, p, "Allocate", s.limits.allocate, func(ctx context.Context) (response, error) {
		return p.api.Allocate(ctx, request)
	})
	s.ports.Metrics.allocations.WithLabelValues(resource).Observe(time.Since(begun).Seconds())
	if err != nil {
		return nil, err
	}
	if len(answer.GetContainerResponses()) == 0 {
		return nil, fmt.Errorf("no containers return in allocation response %s", line(answer.String()))
	}
	container := answer.GetContainerResponses()[0]
	if err := checkAllocation(container); err != nil {
		return nil, fmt.Errorf("the device plugin of %s has answered what can't be used (Allocate): %w", resource, err)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(container)
}

// PreStart tells the plugin that a container with the devices is about to start, if it wants to be told. One that is
// away wants what it wanted last. Errors are ErrAway, ErrSlow, or the plugin's.
func (s *Server) PreStart(ctx context.Context, resource string, ids []string) error {
	if options, known := s.Options(resource); known && !options.PreStart {
		return nil
	}
	p, err := s.plugin(resource)
	if err != nil || !p.options.PreStart {
		return err
	}
	type response = *pluginapi.PreStartContainerResponse
	_, err = call(ctx, p, "PreStartContainer", s.limits.preStart, func(ctx context.Context) (response, error) {
		return p.api.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids})
	})
	if err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil
}

// plugin is the one of the resource.
func (s *Server) plugin(resource string) (*plugin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plugins[resource]
	if p == nil {
		return nil, fmt.Errorf("%w: %s", ErrAway, resource)
	}
	select {
	case <-p.over:
		return nil, fmt.Errorf("%w: %s: %w", ErrAway, resource, p.why())
	default:
		return p, nil
	}
}
