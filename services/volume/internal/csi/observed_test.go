package csi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/services/volume/internal/plugin"
)

// What the kubelet measures besides mounts is measured under its names. A volume that waits to be attached is none of
// that.
func TestOperations(t *testing.T) {
	b := newBed(t, attached())
	var got []string
	ctx := plugin.Observed(t.Context(), func(kind, operation string, migrated bool, _ time.Duration, err error) {
		got = append(got, fmt.Sprintf("%s of %s, migrated %t: %v", operation, kind, migrated, status.Code(err)))
	})
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h/1"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
	mount := func() error {
		request := plugin.Request{Pod: pod, Calls: silent{}}
		_, err := b.volumes.MountPersistent(plugin.Migrated(ctx), request, pv, false)
		return err
	}
	if err := mount(); err == nil || len(got) > 0 {
		t.Errorf("not attached: %v, measured are %q", err, got)
	}
	b.tells(true, true)
	b.api.attachment = &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + hexSum("h/1dn1")},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	}
	if err := mount(); err != nil {
		t.Fatal(err)
	}
	b.gives("u1")
	b.node.answers["unstage"] = []error{status.Error(codes.Internal, "no")}
	if err := b.volumes.unstageIfUnused(ctx, b.stageDir()); err == nil {
		t.Error("it is unstaged")
	}
	if err := b.volumes.unstageIfUnused(ctx, b.stageDir()); err != nil {
		t.Error(err)
	}
	const verified = "verify_controller_attached_volume of kubernetes.io/csi:d, migrated true: OK"
	if want := []string{
		verified, // before it is staged, and not once more before it is published
		"unmount_device of kubernetes.io/csi:d, migrated false: Internal",
		"unmount_device of kubernetes.io/csi:d, migrated false: OK",
	}; !slices.Equal(got, want) {
		t.Errorf("measured are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
