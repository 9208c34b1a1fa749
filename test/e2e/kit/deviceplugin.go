package kit

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	devicepluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// DevicePlugin is a device plugin of the bed's node. Its devices are the node's own /dev/null, under a name of theirs.
type DevicePlugin struct {
	devicepluginapi.UnimplementedDevicePluginServer
	// Resource is what containers ask for.
	Resource string

	t   testing.TB
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

// DevicePlugin makes a plugin with healthy devices, which Serve has register each time that the agent asks for it.
func (b *Bed) DevicePlugin(t testing.TB, resource string, ids ...string) *DevicePlugin {
	t.Helper()
	p := &DevicePlugin{
		Resource: resource, t: t, dir: filepath.Join(b.Node.RootDir, "device-plugins"), health: map[string]bool{},
		changed: make(chan struct{}), prestarted: map[string]int{},
	}
	for _, id := range ids {
		p.health[id] = true
	}
	return p
}

func (p *DevicePlugin) socket() string {
	return filepath.Join(p.dir, strings.ReplaceAll(p.Resource, "/", "_")+".sock")
}

// Serve serves and registers until the test ends or Stop is called. When the agent removes the socket, as a sign that
// it has begun anew, the plugin does both again.
func (p *DevicePlugin) Serve() {
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan struct{})
	p.t.Cleanup(func() {
		cancel()
		<-done
		p.Stop()
	})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if _, err := os.Stat(p.socket()); err != nil {
				if err := p.begin(ctx); err != nil {
					p.t.Logf("device plugin %s: %v", p.Resource, err)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
}

func (p *DevicePlugin) begin(ctx context.Context) error {
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

func (p *DevicePlugin) register(ctx context.Context) error {
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
func (p *DevicePlugin) Stop() {
	p.mu.Lock()
	server := p.serving
	p.serving = nil
	p.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Registrations is how often the plugin has registered.
func (p *DevicePlugin) Registrations() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.registered
}

// PreStarts is how often a container with the device was about to start.
func (p *DevicePlugin) PreStarts(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prestarted[id]
}

// OnCall has f called, from other goroutines, at the begin of each Allocate and PreStartContainer.
func (p *DevicePlugin) OnCall(f func(call string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

func (p *DevicePlugin) called(call string) {
	p.mu.Lock()
	fault := p.fault
	p.mu.Unlock()
	if fault != nil {
		fault(call)
	}
}

// SetHealth makes a device healthy or not.
func (p *DevicePlugin) SetHealth(id string, healthy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health[id] = healthy
	close(p.changed)
	p.changed = make(chan struct{})
}

// GetDevicePluginOptions implements the plugin's service.
func (p *DevicePlugin) GetDevicePluginOptions(context.Context, *devicepluginapi.Empty,
) (*devicepluginapi.DevicePluginOptions, error) {
	return &devicepluginapi.DevicePluginOptions{PreStartRequired: true}, nil
}

// ListAndWatch implements the plugin's service.
func (p *DevicePlugin) ListAndWatch(_ *devicepluginapi.Empty, stream devicepluginapi.DevicePlugin_ListAndWatchServer,
) error {
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
func (p *DevicePlugin) Allocate(_ context.Context, r *devicepluginapi.AllocateRequest,
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
func (p *DevicePlugin) PreStartContainer(_ context.Context, r *devicepluginapi.PreStartContainerRequest,
) (*devicepluginapi.PreStartContainerResponse, error) {
	p.called("PreStartContainer")
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range r.GetDevicesIds() {
		p.prestarted[id]++
	}
	return &devicepluginapi.PreStartContainerResponse{}, nil
}

// PodResources asks the node's PodResources API for a pod. It waits for an API that isn't there for a moment.
func (n *Namespace) PodResources(name string) *podresourcesapi.PodResources {
	n.t.Helper()
	socket := filepath.Join(n.bed.Node.RootDir, "pod-resources", "kubelet.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var answer *podresourcesapi.GetPodResourcesResponse
	Eventually(n.t, "the PodResources API to have "+name, func() (err error) {
		ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Second)
		defer cancel()
		answer, err = podresourcesapi.NewPodResourcesListerClient(conn).Get(ctx,
			&podresourcesapi.GetPodResourcesRequest{PodName: name, PodNamespace: n.Name})
		return err
	})
	return answer.GetPodResources()
}
