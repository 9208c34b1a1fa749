package csi

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/services/volume/internal/growth"
	"kubelot.dev/services/volume/internal/plugin"
)

func TestGrow(t *testing.T) {
	b := newBed(t, unattached())
	b.node.expands = true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	grow := func() error {
		return b.volumes.Grow(t.Context(), plugin.Request{Pod: pod, Calls: silent{}}, pv, resource.MustParse("2Gi"))
	}
	b.claimsVolume("u1", pv, "")
	pv.Spec.CSI.NodeExpandSecretRef = &corev1.SecretReference{Namespace: "other", Name: "grow"}
	pv.Spec.CSI.FSType, pv.Spec.MountOptions = "xfs", []string{"noatime"}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	if err := grow(); err != nil {
		t.Error(err)
	}
	r := b.node.expansion
	if r.GetVolumeId() != "h/1" || r.GetVolumePath() != filepath.Join(b.podDir("u1"), "mount") ||
		r.GetStagingTargetPath() != filepath.Join(b.stageDir(), "globalmount") ||
		r.GetCapacityRange().GetRequiredBytes() != 2<<30 || r.GetSecrets()["key"] != "s3cret of other/grow" {
		t.Errorf("request %v", r)
	}
	if can := r.GetVolumeCapability(); can.GetMount().GetFsType() != "xfs" ||
		!slices.Equal(can.GetMount().GetMountFlags(), pv.Spec.MountOptions) ||
		can.GetAccessMode().GetMode() != csiapi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER {
		t.Errorf("the volume is to be used as %v", can)
	}
	for code, want := range map[codes.Code]error{
		codes.FailedPrecondition: growth.ErrInUse, codes.OutOfRange: growth.ErrInfeasible,
		codes.NotFound: growth.ErrInfeasible, codes.InvalidArgument: growth.ErrInfeasible, codes.Internal: growth.ErrFinal,
		codes.Unavailable: nil, codes.DeadlineExceeded: nil,
	} {
		b.node.answers["expand"] = []error{status.Error(code, "no")}
		err := grow()
		kinds := 0
		for _, kind := range []error{growth.ErrInUse, growth.ErrInfeasible, growth.ErrFinal} {
			if errors.Is(err, kind) {
				kinds++
			}
		}
		if err == nil || want != nil && (!errors.Is(err, want) || kinds != 1) || want == nil && kinds > 0 {
			t.Errorf("%s: %v; want %v", code, err, want)
		}
	}
	b.node.expands = false
	b.restartDriver()
	if err := grow(); !errors.Is(err, growth.ErrUnsupported) || b.volumes.Grows("d") {
		t.Errorf("%v, and it grows: %v", err, b.volumes.Grows("d"))
	}
	b.gives("u1")
	if err := grow(); err == nil {
		t.Error("it grows for a pod that doesn't have it")
	}
}
