package persistent

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/volume/internal/growth"
	"kubelot.dev/services/volume/internal/plugin"
)

// A volume of several nodes that another node has made larger grows here too, and nothing is written of it.
func TestGrowthOnAnotherNodeIsFollowed(t *testing.T) {
	driver := &growing{}
	b := newBed(t, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	b.kinds = Kinds(b.root, b, driver, nil)
	b.claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	b.asks("64Mi", "")
	r := b.request("u-1")
	r.Known = b.mount(r)
	if r.Known.Size != "64Mi" {
		t.Errorf("it has %q here", r.Known.Size)
	}
	driver.in = plugin.InPlace{OfDriver: true, There: true, Grows: true}
	elsewhere := func(size string) {
		b.asks(size, "")
		b.claim.Status.Capacity = b.volume.Spec.Capacity
		b.claim.Status.AllocatedResourceStatuses = nil
		b.claim.ResourceVersion = "elsewhere"
		driver.grown, b.warnings, r.Known.LookAt = nil, nil, time.Now().Add(-time.Second)
	}
	elsewhere("128Mi")
	b.conflicts = 1000 // a write would fail
	r.Known = b.mount(r)
	want := `FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv" `
	if !slices.Equal(driver.grown, []string{"pv 128Mi"}) || r.Known.Size != "128Mi" ||
		!slices.Equal(b.warnings, []string{"Pod " + want, "PersistentVolumeClaim " + want}) {
		t.Errorf("grown %q, known %+v, Events %q", driver.grown, r.Known, b.warnings)
	}
	elsewhere("128Mi")
	r.Known = b.mount(r)
	if len(driver.grown) > 0 {
		t.Errorf("it grew once more: %q", driver.grown)
	}
	// A driver that does nothing on nodes isn't asked again, one that fails is.
	elsewhere("192Mi")
	driver.err = growth.ErrUnsupported
	r.Known = b.mount(r)
	if r.Known.Size != "192Mi" || len(b.warnings) > 0 {
		t.Errorf("known %+v, Events %q", r.Known, b.warnings)
	}
	elsewhere("256Mi")
	driver.err = errors.Join(growth.ErrFinal, errors.New("no"))
	var measured []string
	ctx := plugin.Observed(t.Context(), func(kind, operation string, _ bool, _ time.Duration, err error) {
		measured = append(measured, fmt.Sprintf("%s of %s: %t", operation, kind, err == nil))
	})
	result, err := b.kinds.For(r.Volume).Plugin.Mount(ctx, r)
	if err == nil || result.Size != "192Mi" || len(b.claim.Status.Conditions) > 0 || b.conflicts != 1000 {
		t.Errorf("%+v, %v, claim %+v", result, err, b.claim.Status)
	}
	if want := []string{"volume_fs_resize of kubernetes.io/csi:d: false"}; !slices.Equal(measured, want) {
		t.Errorf("measured are %q, want %q", measured, want)
	}
	b.claim.Annotations = map[string]string{"volume.kubernetes.io/node-expansion-not-required": ""}
	driver.grown = nil
	if b.mount(r); len(driver.grown) > 0 {
		t.Errorf("it grew though nothing is required: %q", driver.grown)
	}
	// A pod that comes now has the volume as it is.
	if got := b.mount(b.request("u-2")); got.Size != "256Mi" || len(driver.grown) > 0 {
		t.Errorf("%+v, grown %q", got, driver.grown)
	}
}
