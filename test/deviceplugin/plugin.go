// Package deviceplugin is a device plugin for tests and benchmarks. Its devices are the node's own /dev/null, each
// under a name of its own.
//
// Reads and writes: the node agent's directory of device plugins, or its plugins_registry. Owns: its own sockets there.
//
// Guarantees: it registers each time that the agent asks for it, until it is told to end.
package deviceplugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	devicepluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// KubeletDir is where the kubelet has the plugins of devices, whatever its root directory is.
const KubeletDir = "/var/lib/kubelet/device-plugins"

// Plugin is a device plugin of one kind of device.
type Plugin struct {
	devicepluginapi.UnimplementedDevicePluginServer
	// Resource is what containers ask for.
	Resource string
	// Registry is the agent's plugins_registry, where the plugin is to be found; empty for one that registers itself.
	Registry string
	// Prefers has the agent ask which devices the plugin prefers: the last ones.
	Prefers bool
	// CDI is the kind of CDI devices that containers get besides, by the names of their devices; empty for none.
	CDI string

	dir string

	mu      sync.Mutex
	health  map[string]bool
	changed chan struct{}
	// prestarted counts PreStartContainer by device; fault is called at the begin of each call.
	prestarted map[string]int
	fault      func(call string)
	registered int
	lists      int
	serving    []*grpc.Server
	stops      int // that are under way
}

// New makes a plugin with healthy devices whose socket is in the directory. That is the agent's own for device plugins,
// unless the plugin is in the registry.
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
		if _, err := os.Stat(p.socket()); err != nil && !p.stopping() {
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
	if err := p.serve(ctx, p.socket(), func(s *grpc.Server) {
		devicepluginapi.RegisterDevicePluginServer(s, p)
	}); err != nil {
		return err
	}
	if p.Registry != "" {
		err := p.serve(ctx, filepath.Join(p.Registry, filepath.Base(p.socket())), func(s *grpc.Server) {
			registerapi.RegisterRegistrationServer(s, registration{plugin: p})
		})
		if err != nil {
			p.Stop()
		}
		return err
	}
	if err := p.register(ctx); err != nil {
		_ = os.Remove(p.socket())
		return err
	}
	p.countRegistration()
	return nil
}

func (p *Plugin) serve(ctx context.Context, socket string, register func(*grpc.Server)) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	register(server)
	p.mu.Lock()
	p.serving = append(p.serving, server)
	p.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
	return nil
}

func (p *Plugin) countRegistration() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.registered++
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
		Options: p.options(),
	})
	return err
}

// Stop ends the service. Its sockets go with it.
func (p *Plugin) Stop() {
	p.mu.Lock()
	servers := p.serving
	p.serving = nil
	p.stops++
	p.mu.Unlock()
	for _, server := range servers {
		server.Stop()
	}
	p.mu.Lock()
	p.stops--
	p.mu.Unlock()
}

// stopping reports whether a service is being ended: that removes its sockets, also where new ones have taken their
// place meanwhile.
func (p *Plugin) stopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stops > 0
}

// Registrations is how often the plugin has registered.
func (p *Plugin) Registrations() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.registered
}

// Lists is how often the agent has begun to watch the plugin's devices.
func (p *Plugin) Lists() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists
}

// PreStarts is how often a container with the device was about to start.
func (p *Plugin) PreStarts(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prestarted[id]
}

// OnCall has f called, from other goroutines, at the begin of each call of the agent. While the plugin registers the
// agent asks for its options. One in the registry gets GetInfo before, and NotifyRegistrationStatus.
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
	p.called("GetDevicePluginOptions")
	return p.options(), nil
}

func (p *Plugin) options() *devicepluginapi.DevicePluginOptions {
	return &devicepluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: p.Prefers}
}

// ListAndWatch implements the plugin's service.
func (p *Plugin) ListAndWatch(_ *devicepluginapi.Empty, stream devicepluginapi.DevicePlugin_ListAndWatchServer) error {
	p.mu.Lock()
	p.lists++
	p.mu.Unlock()
	p.called("ListAndWatch")
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

// GetPreferredAllocation implements the plugin's service.
func (p *Plugin) GetPreferredAllocation(_ context.Context, r *devicepluginapi.PreferredAllocationRequest,
) (*devicepluginapi.PreferredAllocationResponse, error) {
	p.called("GetPreferredAllocation")
	answer := &devicepluginapi.PreferredAllocationResponse{}
	for _, c := range r.GetContainerRequests() {
		ids := c.GetMustIncludeDeviceIDs()
		for _, id := range slices.Backward(slices.Sorted(slices.Values(c.GetAvailableDeviceIDs()))) {
			if len(ids) < int(c.GetAllocationSize()) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses,
			&devicepluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return answer, nil
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
			if p.CDI != "" {
				one.CdiDevices = append(one.CdiDevices, &devicepluginapi.CDIDevice{Name: p.CDI + "=" + id})
			}
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
