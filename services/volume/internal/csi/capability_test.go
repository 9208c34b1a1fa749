package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
)

// Each bit of what a driver can do, and each field of the volume, is in the requests to stage and to publish.
func TestCapabilitiesInRequests(t *testing.T) {
	for bits := range 8 {
		groups, fine, readOnly := bits&1 != 0, bits&2 != 0, bits&4 != 0
		t.Run(fmt.Sprintf("groups=%v fine=%v readOnly=%v", groups, fine, readOnly), func(t *testing.T) {
			requestsHave(t, groups, fine, readOnly)
		})
	}
}

func requestsHave(t *testing.T, groups, fine, readOnly bool) {
	t.Helper()
	b := newBed(t, unattached())
	b.node.groups, b.node.fine = groups, fine
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	pv.Spec.MountOptions = []string{"noatime", "nodev"}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: "d", VolumeHandle: "h/1", FSType: "xfs", VolumeAttributes: map[string]string{"colour": "blue"},
	}
	group := int64(1234)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	r := plugin.Request{Pod: pod, Calls: silent{}}
	if result, err := b.volumes.MountPersistent(t.Context(), r, pv, readOnly); err != nil || result.ReadOnly != readOnly {
		t.Fatalf("%+v, %v", result, err)
	}
	stage, ok := b.node.requests[0].(*csiapi.NodeStageVolumeRequest)
	if !ok {
		t.Fatalf("it began with %T", b.node.requests[0])
	}
	mode, gid := csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, ""
	if fine {
		mode = csiapi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	}
	if groups {
		gid = "1234"
	}
	want := &csiapi.VolumeCapability{
		AccessMode: &csiapi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csiapi.VolumeCapability_Mount{Mount: &csiapi.VolumeCapability_MountVolume{
			FsType: "xfs", MountFlags: pv.Spec.MountOptions, VolumeMountGroup: gid,
		}},
	}
	publish := b.node.last
	for _, got := range []*csiapi.VolumeCapability{stage.GetVolumeCapability(), publish.GetVolumeCapability()} {
		if got.String() != want.String() {
			t.Errorf("%v; want %v", got, want)
		}
	}
	if publish.GetReadonly() != readOnly || publish.GetVolumeContext()["colour"] != "blue" ||
		stage.GetVolumeContext()["colour"] != "blue" {
		t.Errorf("staged by %v, published by %v", stage, publish)
	}
}

// Who gives the files to the pod's fsGroup follows from the driver, its policy and the volume.
func TestWhoSetsTheGroup(t *testing.T) {
	none, file, fs := storagev1.NoneFSGroupPolicy, storagev1.FileFSGroupPolicy,
		storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	type change func(*target)
	read := func(t *target) { t.readOnly = true }
	many := func(t *target) { t.modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany} }
	alone := func(t *target) { t.modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod} }
	plain := func(t *target) { t.fsType = "" }
	nobody := func(t *target) { t.pod = &corev1.Pod{} }
	absent := func(t *target) { t.object = nil }
	for _, c := range []struct {
		name   string
		policy *storagev1.FSGroupPolicy
		change change
		can    driver.Capabilities
		want   bool
	}{
		{name: "no policy", want: true},
		{name: "no object", change: absent, want: true},
		{name: "no policy, of several nodes", change: many},
		{name: "no policy, of one pod", change: alone, want: true},
		{name: "no policy, without a filesystem's name", change: plain},
		{name: "the default", policy: &fs, want: true},
		{name: "the default, of several nodes", policy: &fs, change: many},
		{name: "never", policy: &none},
		{name: "always", policy: &file, want: true},
		{name: "always, of several nodes", policy: &file, change: many, want: true},
		{name: "always, without a filesystem's name", policy: &file, change: plain, want: true},
		{name: "always, but read-only", policy: &file, change: read},
		{name: "always, but no group", policy: &file, change: nobody},
		{name: "always, but the driver does", policy: &file, can: driver.Capabilities{MountGroup: true}},
		{name: "by default, but the driver does", can: driver.Capabilities{MountGroup: true}},
	} {
		group := int64(5)
		to := target{
			fsType: "ext4", modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			pod:    &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{FSGroup: &group}}},
			object: &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{FSGroupPolicy: c.policy}},
		}
		if c.change != nil {
			c.change(&to)
		}
		if got := to.setsGroup(&c.can); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A driver that hangs holds up the volume that it is asked for, and neither its others nor those of another driver.
func TestHangingDriverHoldsUpItsVolume(t *testing.T) {
	b := newBed(t, unattached())
	other := &node{answers: map[string][]error{}, stages: true}
	socket := filepath.Join(b.root, "other")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csiapi.RegisterNodeServer(server, other)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { b.drivers.Close(); server.Stop(); served.Wait() })
	b.drivers.SetObject("other", &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: unattached()})
	b.drivers.Registered(map[string]topic.Plugin{
		"d": {
			Type: topic.CSIPlugin, Name: "d", PluginEndpoint: topic.PluginEndpoint{Endpoint: filepath.Join(b.root, "s")},
		},
		"other": {Type: topic.CSIPlugin, Name: "other", PluginEndpoint: topic.PluginEndpoint{Endpoint: socket}},
	})
	mount := func(ctx context.Context, uid types.UID, name, handle string) error {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: handle}}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: name, VolumeHandle: handle}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: uid}}
		_, err := b.volumes.MountPersistent(ctx, plugin.Request{Pod: pod, Calls: silent{}}, pv, false)
		return err
	}
	b.node.hang = "publish"
	hung := make(chan error, 1)
	ctx, giveUp := context.WithCancelCause(t.Context())
	go func() { hung <- mount(ctx, "u1", "d", "hangs") }()
	<-b.node.entered
	b.node.mu.Lock()
	b.node.hang = ""
	b.node.mu.Unlock()
	if err := errors.Join(mount(t.Context(), "u1", "d", "fine"), mount(t.Context(), "u2", "d", "fine"),
		mount(t.Context(), "u4", "other", "hangs"), mount(t.Context(), "u3", "other", "fine")); err != nil {
		t.Error(err)
	}
	// Another pod waits for the same volume, and no longer than it wants to.
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if err := mount(late, "u2", "d", "hangs"); err == nil {
		t.Error("another pod has the volume that hangs")
	}
	select {
	case err := <-hung:
		t.Errorf("it came back by itself: %v", err)
	default:
	}
	giveUp(errors.New("the test has seen enough"))
	if err := <-hung; err == nil {
		t.Error("it was mounted")
	}
}
