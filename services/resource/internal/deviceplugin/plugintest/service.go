package plugintest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// errEnd ends a stream without an error.
var errEnd = errors.New("end")

// GetDevicePluginOptions is the plugin's.
func (p *Plugin) GetDevicePluginOptions(ctx context.Context, _ *pluginapi.Empty,
) (*pluginapi.DevicePluginOptions, error) {
	if err := p.called(ctx, "GetDevicePluginOptions"); err != nil {
		return nil, err
	}
	if p.Options == nil {
		return &pluginapi.DevicePluginOptions{}, nil
	}
	return p.Options, nil
}

// ListAndWatch is the plugin's.
func (p *Plugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse],
) error {
	p.mu.Lock()
	p.calls = append(p.calls, "ListAndWatch")
	p.mu.Unlock()
	for {
		p.mu.Lock()
		list, fault, changed := slices.Clone(p.devices), p.fault, p.changed
		p.mu.Unlock()
		switch {
		case errors.Is(fault, errEnd):
			return nil
		case fault != nil:
			return fault
		case list != nil:
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// GetPreferredAllocation is the plugin's.
func (p *Plugin) GetPreferredAllocation(ctx context.Context, q *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	if err := p.called(ctx, "GetPreferredAllocation"); err != nil {
		return nil, err
	}
	if p.Prefer == nil {
		return &pluginapi.PreferredAllocationResponse{}, nil
	}
	return p.Prefer(q.GetContainerRequests()[0]), nil
}

// Allocate is the plugin's.
func (p *Plugin) Allocate(ctx context.Context, q *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	if err := p.called(ctx, "Allocate"); err != nil {
		return nil, err
	}
	ids := q.GetContainerRequests()[0].GetDevicesIds()
	if p.Answer != nil {
		return p.Answer(ids), nil
	}
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{
		{Envs: map[string]string{"DEVICES": strings.Join(ids, ",")}},
	}}, nil
}

// PreStartContainer is the plugin's.
func (p *Plugin) PreStartContainer(ctx context.Context, q *pluginapi.PreStartContainerRequest,
) (*pluginapi.PreStartContainerResponse, error) {
	if err := p.called(ctx, "PreStartContainer "+strings.Join(q.GetDevicesIds(), ",")); err != nil {
		return nil, err
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}
