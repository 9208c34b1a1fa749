package csi

import (
	"path/filepath"
	"strings"
	"testing"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
)

func TestUsage(t *testing.T) {
	b := newBed(t, unattached())
	b.node.usage = []*csiapi.VolumeUsage{
		{Unit: csiapi.VolumeUsage_BYTES, Total: 30, Available: 20, Used: 10},
		{Unit: csiapi.VolumeUsage_INODES, Total: 3, Available: 2, Used: 1},
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	result := b.claimsVolume("u1", pv, "")
	if !result.Measured {
		t.Errorf("the result is %+v", result)
	}
	b.restartDriver() // nobody has asked it yet what it can do
	if !b.claimsVolume("u1", pv, "").Measured {
		t.Error("a driver that has just come isn't asked how full the volume is")
	}
	want := topic.VolumeUsageReply{
		Bytes:  topic.VolumeAmount{Total: 30, Available: 20, Used: 10},
		Inodes: topic.VolumeAmount{Total: 3, Available: 2, Used: 1},
	}
	if got, err := b.volumes.Usage(t.Context(), result.HostPath); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if r := b.node.asks; r.GetVolumeId() != "h/1" || r.GetVolumePath() != filepath.Join(b.podDir("u1"), "mount") {
		t.Errorf("request %v", r)
	}
	fails := func(want string) {
		t.Helper()
		if got, err := b.volumes.Usage(t.Context(), result.HostPath); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v; want %q", got, err, want)
		}
	}
	b.node.usage[0].Used = -1
	fails("of 30 BYTES -1 are used")
	b.node.answers["usage"] = []error{status.Error(codes.NotFound, "no such thing")}
	fails("no such thing")
	b.gives("u1")
	fails(errNotThere.Error())
	b.node.usage = nil
	b.restartDriver()
	if b.claimsVolume("u1", pv, "").Measured {
		t.Error("a driver that can't say how full a volume is is asked for it")
	}
}

// A device grows where the driver has published it, and is measured where the node holds it. The driver is told of the
// pod, and gets no tokens. The kubelet does the same.
func TestRequestsAboutADevice(t *testing.T) {
	b := newBlockBed(t)
	yes, spec := true, unattached()
	spec.PodInfoOnMount, spec.TokenRequests = &yes, []storagev1.TokenRequest{{Audience: "a"}}
	b.drivers.SetObject("d", &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: spec})
	b.node.expands, b.node.usage = true, []*csiapi.VolumeUsage{{Unit: csiapi.VolumeUsage_BYTES, Total: 1 << 20}}
	block, pv := corev1.PersistentVolumeBlock, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.VolumeMode = &block
	result := b.claimsVolume("u1", pv, "")
	if given := b.node.last.GetVolumeContext(); given["csi.storage.k8s.io/pod.name"] != "p" ||
		given[driver.KeyTokens] != "" || b.api.asked > 0 {
		t.Errorf("published with %v; %d tokens were asked for", given, b.api.asked)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
	request := plugin.Request{Pod: pod, Calls: silent{}}
	if err := b.volumes.Grow(t.Context(), request, pv, resource.MustParse("2Mi")); err != nil {
		t.Error(err)
	}
	if r := b.node.expansion; r.GetVolumePath() != filepath.Join(b.devicesDir(), "publish/pv/u1") ||
		r.GetStagingTargetPath() != filepath.Join(b.devicesDir(), "staging/pv") || r.GetVolumeCapability().GetBlock() == nil {
		t.Errorf("it grows by %v", r)
	}
	if _, err := b.volumes.Usage(t.Context(), result.Device); err != nil {
		t.Error(err)
	}
	if r := b.node.asks; r.GetVolumePath() != filepath.Join(b.devicesDir(), "pv/dev/u1") {
		t.Errorf("it is measured by %v", r)
	}
	b.givesDevice("u1", "")
	b.unstagesDevice()
	b.nothingIsLeft()
}
