package kit

import (
	"maps"
	"slices"
	"sync"
	"time"

	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
)

const (
	// healthLimit is after how many seconds without a report a device counts as unknown; healthPeriod is how often its
	// driver repeats the report.
	healthLimit  = 10
	healthPeriod = time.Second
)

// draHealth streams how a driver's devices are.
type draHealth struct {
	healthv1alpha1.UnimplementedDRAResourceHealthServer
	// called is told of each stream that begins.
	called func(call string)

	mu sync.Mutex
	// devices is nil for a driver that reports no health.
	devices map[string]*healthv1alpha1.DeviceHealth
	// news is closed when a device is another way.
	news chan struct{}
}

// Report has the driver report that the device is so. A driver that has reported nothing when it is served doesn't have
// the service.
func (d *DRADriver) Report(device string, health healthv1alpha1.HealthStatus, message string) {
	h := &d.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.devices == nil {
		h.devices = map[string]*healthv1alpha1.DeviceHealth{}
	} else {
		close(h.news)
	}
	h.news = make(chan struct{})
	h.devices[device] = &healthv1alpha1.DeviceHealth{
		Device: &healthv1alpha1.DeviceIdentifier{PoolName: NodeName, DeviceName: device},
		Health: health, Message: message, HealthCheckTimeoutSeconds: healthLimit,
	}
}

// used reports whether the driver has reported something.
func (h *draHealth) used() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.devices != nil
}

// NodeWatchResources implements the stream: each message has all devices.
func (h *draHealth) NodeWatchResources(_ *healthv1alpha1.NodeWatchResourcesRequest,
	stream healthv1alpha1.DRAResourceHealth_NodeWatchResourcesServer,
) error {
	h.called("NodeWatchResources")
	for {
		h.mu.Lock()
		message := &healthv1alpha1.NodeWatchResourcesResponse{Devices: slices.Collect(maps.Values(h.devices))}
		news := h.news
		h.mu.Unlock()
		if err := stream.Send(message); err != nil {
			return err
		}
		select {
		case <-news:
		case <-time.After(healthPeriod):
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
