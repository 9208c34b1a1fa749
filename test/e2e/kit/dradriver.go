package kit

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// DRADriver is a driver of dynamic resource allocation on the bed's node: for each of its devices, containers get an
// environment variable by CDI.
type DRADriver struct {
	drapb.UnimplementedDRAPluginServer
	registerapi.UnimplementedRegistrationServer
	Name string
	// Beta has it serve v1beta1.DRAPlugin instead of v1.DRAPlugin.
	Beta bool

	t   testing.TB
	bed *Bed
	dir string
	// slice has its devices.
	slice  *resourcev1.ResourceSlice
	health draHealth

	mu    sync.Mutex
	calls []string
	fail  error
	fault func(call string)
	stop  func()
}

// DRADriver makes a driver with these devices, their ResourceSlice and a DeviceClass of the driver's name. It registers
// when Serve is called.
func (b *Bed) DRADriver(t testing.TB, name string, devices ...string) *DRADriver {
	t.Helper()
	d := &DRADriver{Name: name, t: t, bed: b, dir: t.TempDir()}
	d.health.called = d.called
	api, node := b.Client.ResourceV1(), NodeName
	d.slice = &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice-" + name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: name, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1, Generation: 1},
		},
	}
	for _, device := range devices {
		d.slice.Spec.Devices = append(d.slice.Spec.Devices, resourcev1.Device{Name: device})
	}
	CDI(t, name+"/toy", "TOY", devices...)
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf("device.driver == %q", name),
		}}},
	}}
	if _, err := api.DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.Publish()
	t.Cleanup(func() {
		_ = api.DeviceClasses().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = api.ResourceSlices().Delete(context.Background(), d.slice.Name, metav1.DeleteOptions{})
	})
	return d
}

// OfferAs has the driver's DeviceClass give its devices to pods that ask for the extended resource (KEP-5004).
func (d *DRADriver) OfferAs(resource string) {
	d.t.Helper()
	patch := fmt.Sprintf(`{"spec": {"extendedResourceName": %q}}`, resource)
	if _, err := d.bed.Client.ResourceV1().DeviceClasses().Patch(d.t.Context(), d.Name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

// Share has each of the devices given to several claims, until they have consumed its capacity of that name (KEP-5075).
// It is for a driver that hasn't been served: Serve publishes the slice again.
func (d *DRADriver) Share(capacity, amount string) {
	d.t.Helper()
	slices, several := d.bed.Client.ResourceV1().ResourceSlices(), true
	if err := persist(apierrors.IsNotFound, func() error {
		return slices.Delete(d.t.Context(), d.slice.Name, metav1.DeleteOptions{})
	}); err != nil && !apierrors.IsNotFound(err) {
		d.t.Fatal(err)
	}
	for i := range d.slice.Spec.Devices {
		device := &d.slice.Spec.Devices[i]
		device.AllowMultipleAllocations = &several
		device.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
			resourcev1.QualifiedName(capacity): {Value: resource.MustParse(amount)},
		}
	}
}

// Publish creates the slice, as drivers do whenever it is gone.
func (d *DRADriver) Publish() {
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
	d.Publish()
	own, registration := grpc.NewServer(), grpc.NewServer()
	if d.Beta {
		drabeta.RegisterDRAPluginServer(own, drabeta.V1ServerWrapper{DRAPluginServer: d})
	} else {
		drapb.RegisterDRAPluginServer(own, d)
	}
	registerapi.RegisterRegistrationServer(registration, d)
	if d.health.used() {
		healthv1alpha1.RegisterDRAResourceHealthServer(own, &d.health)
	}
	stop = sync.OnceFunc(func() {
		registration.Stop()
		own.Stop()
	})
	d.mu.Lock()
	d.stop = stop
	d.mu.Unlock()
	serve := func(path string, server *grpc.Server) {
		listener, err := new(net.ListenConfig).Listen(d.t.Context(), "unix", path)
		if err != nil {
			d.t.Fatal(err)
		}
		go func() { _ = server.Serve(listener) }()
	}
	serve(d.socket(), own)
	serve(filepath.Join(d.bed.Node.RootDir, "plugins_registry", d.Name+"-reg.sock"), registration)
	return stop
}

// Stop ends the driver that was served last.
func (d *DRADriver) Stop() {
	d.mu.Lock()
	stop := d.stop
	d.mu.Unlock()
	stop()
}

func (d *DRADriver) socket() string { return filepath.Join(d.dir, "dra.sock") }

// service is the one of the driver's API that it has.
func (d *DRADriver) service() string {
	if d.Beta {
		return drabeta.DRAPluginService
	}
	return drapb.DRAPluginService
}

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

// OnCall has f called, from other goroutines, at the begin of each call about a claim, "prepare" or "unprepare", and of
// "GetInfo", "NotifyRegistrationStatus" and "NodeWatchResources".
func (d *DRADriver) OnCall(f func(call string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

func (d *DRADriver) called(what string) {
	d.mu.Lock()
	fault := d.fault
	d.mu.Unlock()
	if fault != nil {
		fault(what)
	}
}

func (d *DRADriver) asked(what string, c *drapb.Claim) error {
	d.called(what)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, what+" "+c.GetNamespace()+"/"+c.GetName())
	return d.fail
}

// GetInfo implements the registration.
func (d *DRADriver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	d.called("GetInfo")
	return &registerapi.PluginInfo{
		Type: registerapi.DRAPlugin, Name: d.Name, Endpoint: d.socket(),
		SupportedVersions: []string{d.service()},
	}, nil
}

// NotifyRegistrationStatus implements the registration. A daemon that has started meanwhile may have removed the slice:
// it is there from now on.
func (d *DRADriver) NotifyRegistrationStatus(ctx context.Context, s *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	d.called("NotifyRegistrationStatus")
	if !s.GetPluginRegistered() {
		d.t.Errorf("the driver %s is refused: %s", d.Name, s.GetError())
	}
	_, _ = d.bed.Client.ResourceV1().ResourceSlices().Create(ctx, d.slice, metav1.CreateOptions{})
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
				CdiDeviceIds: []string{d.Name + "/toy=" + result.Device}, ShareId: (*string)(result.ShareID),
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
