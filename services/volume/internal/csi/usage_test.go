package csi

import (
	"path/filepath"
	"strings"
	"testing"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
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
