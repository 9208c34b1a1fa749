package csi

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
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
	b.claimsAs(uid, corev1.ReadWriteOnce, want)
}

func (b *bed) claimsAs(uid string, mode corev1.PersistentVolumeAccessMode, want string) {
	b.t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{mode}
	b.claimsVolume(uid, pv, want)
}

// claimsVolume mounts the volume for the pod, and returns what the pod has then.
func (b *bed) claimsVolume(uid string, pv *corev1.PersistentVolume, want string) plugin.Result {
	b.t.Helper()
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: "d", VolumeHandle: "h/1", NodeStageSecretRef: &corev1.SecretReference{Namespace: "other", Name: "stage"},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid)}}
	request := plugin.Request{Pod: pod, Calls: events{told: &b.told}}
	result, err := b.volumes.MountPersistent(b.t.Context(), request, pv, false)
	if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
		b.t.Errorf("mount for %s: %v; want %q", uid, err, want)
	}
	return result
}

// podDir is the pod's directory of the persistent volume.
func (b *bed) podDir(uid string) string {
	return filepath.Join(b.root, "pods", uid, "volumes/kubernetes.io~csi/pv")
}

func (b *bed) gives(uid string) {
	b.t.Helper()
	dir := b.podDir(uid)
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
	limit := time.Now().Add(2 * time.Minute)
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
		status.Error(codes.Aborted, "at it"), status.Error(codes.Unavailable, "gone"),
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
	b.tidies(3)
	b.calls("stage", "stage", "unstage")
}

// A pod that never had the volume ends without the driver, in any boot.
func TestEndOfAPodThatNeverHadIt(t *testing.T) {
	b := newBed(t, unattached())
	b.node.answers["stage"] = []error{status.Error(codes.Internal, "no")}
	b.claims("u1", "no")
	b.drivers.Close()
	b.volumes.boot = "another"
	b.gives("u1")
	b.calls("stage")
}

func TestRequestsOfStageAndUnstage(t *testing.T) {
	b := newBed(t, unattached())
	b.claims("u1", "")
	b.gives("u1")
	b.tidies(4)
	staging := filepath.Join(b.stageDir(), "globalmount")
	if len(b.node.requests) != 2 {
		t.Fatalf("requests %v", b.node.requests)
	}
	stage, isStage := b.node.requests[0].(*csiapi.NodeStageVolumeRequest)
	unstage, isUnstage := b.node.requests[1].(*csiapi.NodeUnstageVolumeRequest)
	if !isStage || stage.GetVolumeId() != "h/1" || stage.GetStagingTargetPath() != staging ||
		stage.GetSecrets()["key"] != "s3cret of other/stage" || stage.GetVolumeCapability().GetAccessMode().GetMode() !=
		csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER {
		t.Errorf("staged by %v", stage)
	}
	if !isUnstage || unstage.GetVolumeId() != "h/1" || unstage.GetStagingTargetPath() != staging {
		t.Errorf("unstaged by %v", unstage)
	}
}

// A driver that refuses to unstage, or says itself that it has run out of time, keeps no later pod from the volume.
// Kubernetes' own tests of CSI (csi_node_stage_error_cases.go) want both.
func TestUnstageIsRefused(t *testing.T) {
	for _, code := range []codes.Code{codes.FailedPrecondition, codes.DeadlineExceeded} {
		b := newBed(t, unattached())
		b.claims("u1", "")
		b.gives("u1")
		b.node.answers["unstage"] = []error{status.Error(code, "busy")}
		if err := b.volumes.unstageIfUnused(t.Context(), b.stageDir()); err == nil {
			t.Error("no error")
		}
		b.claims("u2", "")
		b.calls("stage", "publish", "unpublish", "unstage", "stage", "publish")
	}
}

// An Unstage that the caller doesn't wait for any more is repeated: the driver may be at it.
func TestUnstageThatHangs(t *testing.T) {
	b := newBed(t, unattached())
	b.claims("u1", "")
	b.gives("u1")
	hangs := func(method string) {
		b.node.mu.Lock()
		defer b.node.mu.Unlock()
		b.node.hang = method
	}
	hangs("unstage")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.volumes.unstageIfUnused(ctx, b.stageDir()) }()
	<-b.node.entered
	cancel(context.DeadlineExceeded)
	if err := <-ended; err == nil {
		t.Error("no error")
	}
	hangs("")
	b.claims("u2", "")
	b.calls("stage", "publish", "unpublish", "unstage", "unstage", "stage", "publish")
}

// A driver that has forgotten what it staged is asked to stage again, once for each refusal.
func TestForgottenStage(t *testing.T) {
	b := newBed(t, unattached())
	b.claims("u1", "")
	b.node.answers["publish"] = []error{status.Error(codes.FailedPrecondition, "not staged")}
	b.claims("u2", "not staged")
	b.claims("u2", "")
	b.calls("stage", "publish", "publish", "stage", "publish")
}

// One pod at a time has a ReadWriteOncePod volume, also if it is not certain whether the first has it, in any process.
func TestReadWriteOncePod(t *testing.T) {
	b := newBed(t, unattached())
	b.node.answers["publish"] = []error{status.Error(codes.Unavailable, "perhaps")}
	b.claimsAs("u1", corev1.ReadWriteOncePod, "perhaps")
	b.claimsAs("u2", corev1.ReadWriteOncePod, plugin.ErrInUse.Error())
	b.restart()
	b.claimsAs("u2", corev1.ReadWriteOncePod, plugin.ErrInUse.Error())
	b.gives("u1")
	b.claimsAs("u2", corev1.ReadWriteOncePod, "")
	b.calls("stage", "publish", "unpublish", "publish")
}

// What is mounted is in use, whatever the records say; what isn't holds nobody up, and what is damaged only if it may
// be the volume.
func TestInUseByNoRecord(t *testing.T) {
	b := newBed(t, unattached())
	b.node.mounts = true
	b.claims("u1", "")
	b.claims("u2", "")
	record := filepath.Join(b.podDir("u1"), recordName)
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	b.gives("u2")
	refuses := func() {
		t.Helper()
		err := b.volumes.unstageIfUnused(t.Context(), b.stageDir())
		if err == nil || !strings.Contains(err.Error(), "in use at "+b.podDir("u1")) {
			t.Errorf("unstaging a volume in use: %v", err)
		}
	}
	refuses()
	if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses()
	if err := unix.Unmount(filepath.Join(b.podDir("u1"), "mount"), 0); err != nil {
		t.Fatal(err)
	}
	b.volumes.unstageIfUnusedOrFail(t, b.stageDir())
	b.calls("stage", "publish", "publish", "unpublish", "unstage")
}

// A mount of which nobody knows the volume doesn't hold up those that are staged by mounts which nobody shares.
func TestMountOfAnUnknownVolume(t *testing.T) {
	b := newBed(t, unattached())
	b.node.mounts = true
	stray := filepath.Join(b.podDir("u9"), "mount")
	if err := os.MkdirAll(stray, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", stray, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(stray, 0) })
	b.claims("u1", "")
	b.gives("u1")
	b.volumes.unstageIfUnusedOrFail(t, b.stageDir())
	b.calls("stage", "publish", "unpublish", "unstage")
}

// A stage that is gone without a boot is made again.
func TestStageIsGone(t *testing.T) {
	b := newBed(t, unattached())
	b.node.mounts = true
	b.claims("u1", "")
	for _, point := range []string{filepath.Join(b.podDir("u1"), "mount"), filepath.Join(b.stageDir(), "globalmount")} {
		if err := unix.Unmount(point, 0); err != nil {
			t.Fatal(err)
		}
	}
	b.restart()
	b.claims("u1", "")
	b.gives("u1")
	b.tidies(6)
	b.calls("stage", "publish", "stage", "publish", "unpublish", "unstage")
}

// The root directory's name is no pattern.
func TestNameOfTheRootDirectory(t *testing.T) {
	b := newBed(t, unattached())
	b.root = filepath.Join(b.root, "k[1]*")
	b.restart()
	b.claims("u1", "")
	b.claims("u2", "")
	b.gives("u1")
	b.volumes.unstageIfUnusedOrFail(t, b.stageDir())
	b.calls("stage", "publish", "publish", "unpublish")
	b.gives("u2")
	b.tidies(5)
}

// A driver that hangs holds up its own volumes, and a volume's calls don't overlap.
func TestOneCallAtATime(t *testing.T) {
	b := newBed(t, unattached())
	b.node.hang = "stage"
	var pods sync.WaitGroup
	for _, uid := range []string{"u1", "u2"} {
		pods.Go(func() { b.claims(uid, "") })
	}
	<-b.node.entered
	time.Sleep(50 * time.Millisecond)
	b.calls("stage")
	close(b.node.goOn)
	pods.Wait()
	b.calls("stage", "publish", "publish")
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

func TestAnotherBoot(t *testing.T) {
	b := newBed(t, unattached())
	b.claims("u1", "")
	b.volumes.boot = "another"
	b.claims("u1", "")
	b.calls("stage", "publish", "stage", "publish")
}
