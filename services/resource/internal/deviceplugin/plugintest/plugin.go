// Package plugintest has a device plugin for tests. It is a real one, over gRPC and a unix socket, that can be made to
// fail.
package plugintest

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Plugin is a device plugin. Its fields are set before it serves.
type Plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	// Resource is what it registers.
	Resource string
	// Options are what it says it wants to be asked.
	Options *pluginapi.DevicePluginOptions
	// Fault is called at the beginning of each call but ListAndWatch, with its name. It may wait, and its error is the
	// call's.
	Fault func(ctx context.Context, method string) error
	// Prefer and Answer answer GetPreferredAllocation and Allocate. Nil prefers nothing, and answers with an environment
	// variable DEVICES.
	Prefer func(*pluginapi.ContainerPreferredAllocationRequest) *pluginapi.PreferredAllocationResponse
	Answer func(ids []string) *pluginapi.AllocateResponse

	socket      string
	stop, drain func()

	mu      sync.Mutex
	calls   []string
	devices []*pluginapi.Device
	fault   error
	// changed is closed when devices or fault have changed.
	changed chan struct{}
}

// Device is a healthy device near to the NUMA nodes.
func Device(id string, nodes ...int64) *pluginapi.Device {
	d := &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
	for _, node := range nodes {
		if d.Topology == nil {
			d.Topology = &pluginapi.TopologyInfo{}
		}
		d.Topology.Nodes = append(d.Topology.Nodes, &pluginapi.NUMANode{ID: node})
	}
	return d
}

// Serve serves the plugin on the socket until it is stopped or the test ends.
func (p *Plugin) Serve(t testing.TB, socket string) {
	t.Helper()
	p.mu.Lock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	p.mu.Unlock()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	pluginapi.RegisterDevicePluginServer(server, p)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	var once sync.Once
	end := func(stop func()) func() {
		return func() { once.Do(func() { stop(); serving.Wait() }) }
	}
	p.socket, p.stop, p.drain = socket, end(server.Stop), end(server.GracefulStop)
	t.Cleanup(p.stop)
}

// Stop ends the plugin as if it had died.
func (p *Plugin) Stop() { p.stop() }

// Drain ends the plugin when nobody calls it any more.
func (p *Plugin) Drain() { p.drain() }

// Register registers the plugin at the socket of the kubelet, under the name of its own socket.
func (p *Plugin) Register(ctx context.Context, kubelet string) error {
	return Register(ctx, kubelet, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(p.socket), ResourceName: p.Resource, Options: p.Options,
	})
}

// Register sends a registration to the socket of the kubelet. It waits until somebody serves there.
func Register(ctx context.Context, kubelet string, q *pluginapi.RegisterRequest) error {
	conn, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 2, MaxDelay: time.Second},
			// Without it a connection has the time of the backoff to come up. One that comes up just then is closed
			// under its first call.
			MinConnectTimeout: 20 * time.Second,
		}))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, q, grpc.WaitForReady(true))
	return err
}

// List lists these devices from now on.
func (p *Plugin) List(devices ...*pluginapi.Device) {
	p.change(func() { p.devices = append([]*pluginapi.Device{}, devices...) })
}

// EndList ends ListAndWatch with the error; nil ends the stream without one.
func (p *Plugin) EndList(err error) {
	if err == nil {
		err = errEnd
	}
	p.change(func() { p.fault = err })
}

// Calls are the calls so far, by their names.
func (p *Plugin) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *Plugin) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	if p.changed != nil {
		close(p.changed)
	}
	p.changed = make(chan struct{})
}

// called notes a call, and fails it if it is to fail.
func (p *Plugin) called(ctx context.Context, method string) error {
	p.mu.Lock()
	p.calls = append(p.calls, method)
	p.mu.Unlock()
	if p.Fault == nil {
		return nil
	}
	return p.Fault(ctx, method)
}
