package csi

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/services/volume/internal/plugin"
)

// unattached is the CSIDriver of persistent volumes that needn't be attached.
func unattached() storagev1.CSIDriverSpec {
	no := false
	return storagev1.CSIDriverSpec{
		AttachRequired:       &no,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
	}
}

func (b *bed) stageDir() string {
	return filepath.Join(b.root, "plugins/kubernetes.io/csi/d", hexSum("h/1"))
}

// claims mounts the persistent volume for the pod.
func (b *bed) claims(uid, want string) {
	b.t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: "d", VolumeHandle: "h/1", NodeStageSecretRef: &corev1.SecretReference{Namespace: "other", Name: "stage"},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid)}}
	_, err := b.volumes.MountPersistent(b.t.Context(), plugin.Request{Pod: pod, Calls: silent{}}, pv, false)
	if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
		b.t.Errorf("mount for %s: %v; want %q", uid, err, want)
	}
}

func (b *bed) gives(uid string) {
	b.t.Helper()
	dir := filepath.Join(b.root, "pods", uid, "volumes/kubernetes.io~csi/pv")
	if err := b.volumes.Unmount(b.t.Context(), dir); err != nil {
		b.t.Errorf("unmount for %s: %v", uid, err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		b.t.Errorf("%s is left: %v", dir, err)
	}
}

// tidies runs what unstages until the driver was called so often.
func (b *bed) tidies(calls int) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.volumes.Run(ctx) })
	limit := time.Now().Add(30 * time.Second)
	for {
		_, err := os.Lstat(b.stageDir())
		if len(b.node.all()) >= calls && (os.IsNotExist(err) || time.Now().After(limit)) {
			break
		}
		if time.Now().After(limit) {
			b.t.Errorf("the driver was called %q", b.node.all())
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	running.Wait()
}

func TestPersistentVolume(t *testing.T) {
	b := newBed(t, unattached())
	b.claims("u1", "")
	b.claims("u2", "")
	if got := b.node.last.GetStagingTargetPath(); got != filepath.Join(b.stageDir(), "globalmount") {
		t.Errorf("it is staged at %s", got)
	}
	b.restart()
	b.claims("u1", "")
	b.gives("u1")
	b.volumes.unstageIfUnusedOrFail(t, b.stageDir())
	b.gives("u2")
	b.calls("stage", "publish", "publish", "unpublish", "unpublish")
	b.tidies(6)
	b.calls("stage", "publish", "publish", "unpublish", "unpublish", "unstage")
}

func (v *Volumes) unstageIfUnusedOrFail(t *testing.T, dir string) {
	t.Helper()
	if err := v.unstageIfUnused(t.Context(), dir); err != nil {
		t.Error(err)
	}
}

// An Unstage that isn't answered is repeated before the volume is staged again; so is one of an earlier process.
func TestNeverStagedDuringUnstage(t *testing.T) {
	b := newBed(t, unattached())
	b.claims("u1", "")
	b.gives("u1")
	b.node.answers["unstage"] = []error{
		status.Error(codes.DeadlineExceeded, "late"), status.Error(codes.Unavailable, "gone"),
	}
	if err := b.volumes.unstageIfUnused(t.Context(), b.stageDir()); err == nil {
		t.Error("no error")
	}
	b.restart()
	b.claims("u2", "gone")
	b.claims("u2", "")
	b.calls("stage", "publish", "unpublish", "unstage", "unstage", "unstage", "stage", "publish")
}

func TestOutcomesOfStage(t *testing.T) {
	b := newBed(t, unattached())
	b.node.answers["stage"] = []error{
		status.Error(codes.Internal, "no"), status.Error(codes.ResourceExhausted, "full"),
	}
	b.claims("u1", "MountVolume.MountDevice failed for volume \"pv\" : rpc error: code = Internal desc = no")
	if _, err := os.Lstat(b.stageDir()); !os.IsNotExist(err) {
		t.Errorf("a stage that failed for good has left something: %v", err)
	}
	b.claims("u1", "full")
	if r, err := readRecord(b.stageDir()); err != nil || r.step(b.volumes.boot) != stepStaging {
		t.Errorf("%v, %v", r, err)
	}
	// The pod goes without having had it: it may be staged.
	b.restart()
	b.gives("u1")
	b.tidies(4)
	if got := b.node.all(); !slices.Equal(got, []string{"stage", "stage", "unpublish", "unstage"}) {
		t.Errorf("the driver was called %q", got)
	}
}

// A driver that can't unstage holds up the end of no pod.
func TestUnstageFails(t *testing.T) {
	b := newBed(t, unattached())
	b.node.answers["unstage"] = []error{status.Error(codes.Internal, "busy")}
	b.claims("u1", "")
	b.gives("u1")
	b.tidies(5)
	b.calls("stage", "publish", "unpublish", "unstage", "unstage")
}

func TestAttachIsNeeded(t *testing.T) {
	spec := unattached()
	spec.AttachRequired = nil
	b := newBed(t, spec)
	b.claims("u1", "attachRequired false")
	b.drivers.SetObject("d", nil)
	b.claims("u1", "attachRequired false")
	b.calls()
}

func TestAnotherBoot(t *testing.T) {
	b := newBed(t, unattached())
	b.claims("u1", "")
	b.volumes.boot = "another"
	b.claims("u1", "")
	b.calls("stage", "publish", "stage", "publish")
}
