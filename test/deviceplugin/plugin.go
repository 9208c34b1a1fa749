// Package deviceplugin is a device plugin for tests and benchmarks. Its devices are the node's own /dev/null, each
// under a name of its own.
//
// Reads and writes: the node agent's directory of device plugins. Owns: its own socket there.
//
// Guarantees: it registers each time that the agent asks for it, until it is told to end.
package deviceplugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	devicepluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// KubeletDir is where the kubelet has the plugins of devices, whatever its root directory is.
const KubeletDir = "/var/lib/kubelet/device-plugins"

// Plugin is a device plugin of one kind of device.
type Plugin struct {
	devicepluginapi.UnimplementedDevicePluginServer
	// Resource is what containers ask for.
	Resource string

	dir string

	mu      sync.Mutex
	health  map[string]bool
	changed chan struct{}
	// prestarted counts PreStartContainer by device; fault is called at the begin of each call about a container.
	prestarted map[string]int
	fault      func(call string)
	registered int
	serving    *grpc.Server
}

// New makes a plugin with healthy devices for the agent that has this directory of device plugins.
func New(dir, resource string, ids ...string) *Plugin {
	p := &Plugin{
		Resource: resource, dir: dir, health: map[string]bool{}, changed: make(chan struct{}), prestarted: map[string]int{},
	}
	for _, id := range ids {
		p.health[id] = true
	}
	return p
}

func (p *Plugin) socket() string {
	return filepath.Join(p.dir, strings.ReplaceAll(p.Resource, "/", "_")+".sock")
}

// Run serves and registers until ctx ends. When the agent removes the socket, as a sign that it has begun anew, the
// plugin does both again. failed hears why it couldn't; the next try is soon.
func (p *Plugin) Run(ctx context.Context, failed func(error)) {
	defer p.Stop()
	for ctx.Err() == nil {
		if _, err := os.Stat(p.socket()); err != nil {
			if err := p.begin(ctx); err != nil {
				failed(fmt.Errorf("device plugin %s: %w", p.Resource, err))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (p *Plugin) begin(ctx context.Context) error {
	p.Stop()
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", p.socket())
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	devicepluginapi.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	p.mu.Lock()
	p.serving = server
	p.mu.Unlock()
	if err := p.register(ctx); err != nil {
		_ = os.Remove(p.socket())
		return err
	}
	p.mu.Lock()
	p.registered++
	p.mu.Unlock()
	return nil
}

func (p *Plugin) register(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = devicepluginapi.NewRegistrationClient(conn).Register(ctx, &devicepluginapi.RegisterRequest{
		Version: devicepluginapi.Version, Endpoint: filepath.Base(p.socket()), ResourceName: p.Resource,
		Options: &devicepluginapi.DevicePluginOptions{PreStartRequired: true},
	})
	return err
}

// Stop ends the service. Its socket goes with it.
func (p *Plugin) Stop() {
	p.mu.Lock()
	server := p.serving
	p.serving = nil
	p.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Registrations is how often the plugin has registered.
func (p *Plugin) Registrations() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.registered
}

// PreStarts is how often a container with the device was about to start.
func (p *Plugin) PreStarts(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prestarted[id]
}

// OnCall has f called, from other goroutines, at the begin of each Allocate and PreStartContainer.
func (p *Plugin) OnCall(f func(call string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

func (p *Plugin) called(call string) {
	p.mu.Lock()
	fault := p.fault
	p.mu.Unlock()
	if fault != nil {
		fault(call)
	}
}

// SetHealth makes a device healthy or not.
func (p *Plugin) SetHealth(id string, healthy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health[id] = healthy
	close(p.changed)
	p.changed = make(chan struct{})
}

// GetDevicePluginOptions implements the plugin's service.
func (p *Plugin) GetDevicePluginOptions(context.Context, *devicepluginapi.Empty,
) (*devicepluginapi.DevicePluginOptions, error) {
	return &devicepluginapi.DevicePluginOptions{PreStartRequired: true}, nil
}

// ListAndWatch implements the plugin's service.
func (p *Plugin) ListAndWatch(_ *devicepluginapi.Empty, stream devicepluginapi.DevicePlugin_ListAndWatchServer) error {
	for {
		p.mu.Lock()
		list, changed := &devicepluginapi.ListAndWatchResponse{}, p.changed
		for id, healthy := range p.health {
			d := &devicepluginapi.Device{ID: id, Health: devicepluginapi.Unhealthy}
			if healthy {
				d.Health = devicepluginapi.Healthy
			}
			list.Devices = append(list.Devices, d)
		}
		p.mu.Unlock()
		if err := stream.Send(list); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate implements the plugin's service.
func (p *Plugin) Allocate(_ context.Context, r *devicepluginapi.AllocateRequest,
) (*devicepluginapi.AllocateResponse, error) {
	p.called("Allocate")
	answer := &devicepluginapi.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		one := &devicepluginapi.ContainerAllocateResponse{
			Envs:        map[string]string{"TOYS": strings.Join(c.GetDevicesIds(), ",")},
			Annotations: map[string]string{"toys.test/ids": strings.Join(c.GetDevicesIds(), ",")},
			Mounts:      []*devicepluginapi.Mount{{ContainerPath: "/toys", HostPath: p.dir, ReadOnly: true}},
		}
		for _, id := range c.GetDevicesIds() {
			one.Devices = append(one.Devices, &devicepluginapi.DeviceSpec{
				ContainerPath: "/dev/" + id, HostPath: "/dev/null", Permissions: "rw",
			})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}

// PreStartContainer implements the plugin's service.
func (p *Plugin) PreStartContainer(_ context.Context, r *devicepluginapi.PreStartContainerRequest,
) (*devicepluginapi.PreStartContainerResponse, error) {
	p.called("PreStartContainer")
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range r.GetDevicesIds() {
		p.prestarted[id]++
	}
	return &devicepluginapi.PreStartContainerResponse{}, nil
}
