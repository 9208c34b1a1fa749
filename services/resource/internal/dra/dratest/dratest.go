// Package dratest has DRA drivers for tests, with faults. They serve the kubelet's real gRPC services.
package dratest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
)

// Driver is a plugin of a DRA driver.
type Driver struct {
	drav1.UnimplementedDRAPluginServer
	server *grpc.Server
	served sync.WaitGroup

	mu    sync.Mutex
	calls []string
	fault Fault
	// reports is what the health stream has said last; news is closed when there is another one.
	reports *healthv1alpha1.NodeWatchResourcesResponse
	news    chan struct{}
	hung    chan struct{}
}

// Fault is what is wrong with a driver.
type Fault struct {
	// Hang has it not answer until the call, or the fault, ends.
	Hang bool
	// Err fails the whole call.
	Err error
	// Refuse has claims fail, by name; Skip leaves them out.
	Refuse, Skip map[string]bool
	// Change changes the answer.
	Change func(*drav1.NodePrepareResourcesResponse)
	// Before is called when a call comes.
	Before func(call string)
}

// Options says what a driver serves.
type Options struct {
	// Beta has it serve v1beta1.DRAPlugin instead of v1.
	Beta bool
	// Health has it report the health of devices.
	Health bool
}

// Serve serves a driver on the listener until Stop.
func Serve(listener net.Listener, o Options) *Driver {
	d := &Driver{server: grpc.NewServer(), news: make(chan struct{}), hung: make(chan struct{})}
	if o.Beta {
		drav1beta1.RegisterDRAPluginServer(d.server, drav1beta1.V1ServerWrapper{DRAPluginServer: d})
	} else {
		drav1.RegisterDRAPluginServer(d.server, d)
	}
	if o.Health {
		healthv1alpha1.RegisterDRAResourceHealthServer(d.server, reporter{driver: d})
	}
	d.served.Go(func() { _ = d.server.Serve(listener) })
	return d
}

// Stop ends the driver, as a crash does.
func (d *Driver) Stop() {
	d.server.Stop()
	d.served.Wait()
}

// Set has the driver behave so since now. Calls that hang go on.
func (d *Driver) Set(f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
	close(d.hung)
	d.hung = make(chan struct{})
}

// Calls are the calls since the last time, such as "prepare one two".
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

// begin notes a call, and has it fail or hang.
func (d *Driver) begin(ctx context.Context, call string, about []*drav1.Claim) (Fault, error) {
	d.mu.Lock()
	for _, c := range about {
		call += " " + c.GetName()
	}
	d.calls = append(d.calls, call)
	f, hung := d.fault, d.hung
	d.mu.Unlock()
	if f.Before != nil {
		f.Before(call)
	}
	if f.Hang {
		select {
		case <-hung:
		case <-ctx.Done():
			return f, ctx.Err()
		}
	}
	return f, f.Err
}

// NodePrepareResources answers with a device dev-CLAIM of the pool "pool", whose CDI name is test/dev=CLAIM.
func (d *Driver) NodePrepareResources(ctx context.Context, r *drav1.NodePrepareResourcesRequest,
) (*drav1.NodePrepareResourcesResponse, error) {
	f, err := d.begin(ctx, "prepare", r.GetClaims())
	if err != nil {
		return nil, err
	}
	answer := &drav1.NodePrepareResourcesResponse{Claims: map[string]*drav1.NodePrepareResourceResponse{}}
	for _, c := range r.GetClaims() {
		switch name := c.GetName(); {
		case f.Skip[name]:
		case f.Refuse[name]:
			answer.Claims[c.GetUid()] = &drav1.NodePrepareResourceResponse{Error: "refused " + name}
		default:
			answer.Claims[c.GetUid()] = &drav1.NodePrepareResourceResponse{Devices: []*drav1.Device{{
				PoolName: "pool", DeviceName: "dev-" + name, RequestNames: []string{"req"},
				CdiDeviceIds: []string{"test/dev=" + name},
			}}}
		}
	}
	if f.Change != nil {
		f.Change(answer)
	}
	return answer, nil
}

// NodeUnprepareResources answers that all is well.
func (d *Driver) NodeUnprepareResources(ctx context.Context, r *drav1.NodeUnprepareResourcesRequest,
) (*drav1.NodeUnprepareResourcesResponse, error) {
	f, err := d.begin(ctx, "unprepare", r.GetClaims())
	if err != nil {
		return nil, err
	}
	answer := &drav1.NodeUnprepareResourcesResponse{Claims: map[string]*drav1.NodeUnprepareResourceResponse{}}
	for _, c := range r.GetClaims() {
		switch name := c.GetName(); {
		case f.Skip[name]:
		case f.Refuse[name]:
			answer.Claims[c.GetUid()] = &drav1.NodeUnprepareResourceResponse{Error: "refused " + name}
		default:
			answer.Claims[c.GetUid()] = &drav1.NodeUnprepareResourceResponse{}
		}
	}
	return answer, nil
}

// Report has the health stream say that each device dev-NAME of the pool is so, by lines "NAME healthy|unhealthy
// [MESSAGE]".
func (d *Driver) Report(lines ...string) {
	r := &healthv1alpha1.NodeWatchResourcesResponse{}
	for _, line := range lines {
		words := strings.SplitN(line, " ", 3)
		device := &healthv1alpha1.DeviceHealth{
			Device: &healthv1alpha1.DeviceIdentifier{PoolName: "pool", DeviceName: "dev-" + words[0]},
			Health: healthv1alpha1.HealthStatus_HEALTHY,
		}
		if words[1] == "unhealthy" {
			device.Health = healthv1alpha1.HealthStatus_UNHEALTHY
		}
		device.Message = strings.Join(words[2:], " ")
		r.Devices = append(r.Devices, device)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reports = r
	close(d.news)
	d.news = make(chan struct{})
}

type reporter struct {
	healthv1alpha1.UnimplementedDRAResourceHealthServer
	driver *Driver
}

// NodeWatchResources sends each report.
func (r reporter) NodeWatchResources(_ *healthv1alpha1.NodeWatchResourcesRequest,
	stream healthv1alpha1.DRAResourceHealth_NodeWatchResourcesServer,
) error {
	for {
		r.driver.mu.Lock()
		message, news := r.driver.reports, r.driver.news
		r.driver.mu.Unlock()
		if message != nil {
			if err := stream.Send(message); err != nil {
				return err
			}
		}
		select {
		case <-news:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// errNobody is of an endpoint where nobody listens.
var errNobody = errors.New("connection refused")

// Network is where drivers listen without files, for tests in a bubble of testing/synctest.
type Network struct {
	mu        sync.Mutex
	listeners map[string]dialed
}

// dialed is a listener that can be dialed, such as one of bufconn.
type dialed interface {
	net.Listener
	DialContext(ctx context.Context) (net.Conn, error)
}

// Listen has the endpoint served by the listener; nil for nobody.
func (n *Network) Listen(endpoint string, l dialed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = map[string]dialed{}
	}
	delete(n.listeners, endpoint)
	if l != nil {
		n.listeners[endpoint] = l
	}
}

// Dial is a plugin.Dialer.
func (n *Network) Dial(ctx context.Context, endpoint string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[endpoint]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: %w", endpoint, errNobody)
	}
	return l.DialContext(ctx)
}
