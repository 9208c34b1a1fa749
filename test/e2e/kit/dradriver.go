package kit

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// cdiDir is one of those that container runtimes read (Container Device Interface).
const cdiDir = "/var/run/cdi"

// DRADriver is a driver of dynamic resource allocation on the bed's node: for each of its devices, containers get an
// environment variable by CDI.
type DRADriver struct {
	drapb.UnimplementedDRAPluginServer
	registerapi.UnimplementedRegistrationServer
	Name string

	t   testing.TB
	bed *Bed
	dir string
	// slice has its devices.
	slice *resourcev1.ResourceSlice

	mu    sync.Mutex
	calls []string
	fail  error
	fault func(call string)
}

// DRADriver makes a driver with these devices, their ResourceSlice and a DeviceClass of the driver's name. It registers
// when Serve is called.
func (b *Bed) DRADriver(t testing.TB, name string, devices ...string) *DRADriver {
	t.Helper()
	d := &DRADriver{Name: name, t: t, bed: b, dir: t.TempDir()}
	api, node := b.Client.ResourceV1(), NodeName
	d.slice = &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice-" + name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: name, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1, Generation: 1},
		},
	}
	spec := map[string]any{"cdiVersion": "0.6.0", "kind": name + "/toy"}
	var named []map[string]any
	for _, device := range devices {
		d.slice.Spec.Devices = append(d.slice.Spec.Devices, resourcev1.Device{Name: device})
		edits := map[string]any{"env": []string{"TOY=" + device}}
		named = append(named, map[string]any{"name": device, "containerEdits": edits})
	}
	spec["devices"] = named
	data, err := json.Marshal(spec)
	file := filepath.Join(cdiDir, "kubelot-"+name+".json")
	if err == nil {
		err = os.MkdirAll(cdiDir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf("device.driver == %q", name),
		}}},
	}}
	if _, err := api.DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.publish()
	t.Cleanup(func() {
		_ = os.Remove(file)
		_ = api.DeviceClasses().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = api.ResourceSlices().Delete(context.Background(), d.slice.Name, metav1.DeleteOptions{})
	})
	return d
}

// publish creates the slice, as drivers do whenever it is gone.
func (d *DRADriver) publish() {
	d.t.Helper()
	slices := d.bed.Client.ResourceV1().ResourceSlices()
	if err := persist(apierrors.IsAlreadyExists, func() error {
		_, err := slices.Create(d.t.Context(), d.slice, metav1.CreateOptions{})
		return err
	}); err != nil && !apierrors.IsAlreadyExists(err) {
		d.t.Fatal(err)
	}
}

// Serve registers the driver. The function that it returns ends it. The node may have removed the slice of a driver
// that was away.
func (d *DRADriver) Serve() (stop func()) {
	d.t.Helper()
	d.publish()
	serve := func(path string, register func(*grpc.Server)) *grpc.Server {
		listener, err := new(net.ListenConfig).Listen(d.t.Context(), "unix", path)
		if err != nil {
			d.t.Fatal(err)
		}
		server := grpc.NewServer()
		register(server)
		go func() { _ = server.Serve(listener) }()
		return server
	}
	own := serve(d.socket(), func(s *grpc.Server) { drapb.RegisterDRAPluginServer(s, d) })
	registration := serve(filepath.Join(d.bed.Node.RootDir, "plugins_registry", d.Name+"-reg.sock"),
		func(s *grpc.Server) { registerapi.RegisterRegistrationServer(s, d) })
	return sync.OnceFunc(func() {
		registration.Stop()
		own.Stop()
	})
}

func (d *DRADriver) socket() string { return filepath.Join(d.dir, "dra.sock") }

// Calls are what the driver was asked, "prepare NAMESPACE/CLAIM" and "unprepare NAMESPACE/CLAIM".
func (d *DRADriver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.calls...)
}

// Fail has the driver refuse to prepare claims; nil has it do so again.
func (d *DRADriver) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// OnCall has f called, from other goroutines, at the begin of each call about a claim: "prepare" or "unprepare".
func (d *DRADriver) OnCall(f func(call string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

func (d *DRADriver) asked(what string, c *drapb.Claim) error {
	d.mu.Lock()
	fault := d.fault
	d.mu.Unlock()
	if fault != nil {
		fault(what)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, what+" "+c.GetNamespace()+"/"+c.GetName())
	return d.fail
}

// GetInfo implements the registration.
func (d *DRADriver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.DRAPlugin, Name: d.Name, Endpoint: d.socket(),
		SupportedVersions: []string{drapb.DRAPluginService},
	}, nil
}

// NotifyRegistrationStatus implements the registration.
func (d *DRADriver) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		d.t.Errorf("the driver %s is refused: %s", d.Name, s.GetError())
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

// NodePrepareResources implements the driver's service.
func (d *DRADriver) NodePrepareResources(ctx context.Context, r *drapb.NodePrepareResourcesRequest,
) (*drapb.NodePrepareResourcesResponse, error) {
	answer := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
	for _, c := range r.GetClaims() {
		one := &drapb.NodePrepareResourceResponse{}
		answer.Claims[c.GetUid()] = one
		claim, err := d.bed.Client.ResourceV1().ResourceClaims(c.GetNamespace()).Get(ctx, c.GetName(), metav1.GetOptions{})
		if refused := d.asked("prepare", c); refused != nil {
			err = refused
		}
		if err != nil {
			one.Error = err.Error()
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			one.Devices = append(one.Devices, &drapb.Device{
				RequestNames: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
				CdiDeviceIds: []string{d.Name + "/toy=" + result.Device},
			})
		}
	}
	return answer, nil
}

// NodeUnprepareResources implements the driver's service.
func (d *DRADriver) NodeUnprepareResources(_ context.Context, r *drapb.NodeUnprepareResourcesRequest,
) (*drapb.NodeUnprepareResourcesResponse, error) {
	answer := &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{}}
	for _, c := range r.GetClaims() {
		one := &drapb.NodeUnprepareResourceResponse{}
		if err := d.asked("unprepare", c); err != nil {
			one.Error = err.Error()
		}
		answer.Claims[c.GetUid()] = one
	}
	return answer, nil
}
