package persistent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

// bed is a node with one claim, "data" in namespace "shop", and the volume "pv" behind it.
type bed struct {
	t     *testing.T
	root  string
	kinds plugin.List

	mu     sync.Mutex
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
	// conflicts is how many writes of the claim somebody else is faster at.
	conflicts int
	// asked counts requests to the API server, refuse is how many of them it refuses.
	asked, refuse int

	// What the plugin calls.
	taken    map[string]bool
	warnings []string
}

func newBed(t *testing.T, source corev1.PersistentVolumeSource) *bed {
	b := &bed{
		t: t, root: t.TempDir(), taken: map[string]bool{},
		claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c-1"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		},
		volume: &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: corev1.PersistentVolumeSpec{
				ClaimRef:               &corev1.ObjectReference{UID: "c-1"},
				PersistentVolumeSource: source,
			},
		},
	}
	b.kinds = Kinds(b.root, b, nil, nil)
	t.Cleanup(func() { _ = mounts.UnmountBelow(b.root) })
	return b
}

func (b *bed) refused() error {
	b.asked++
	if b.asked <= b.refuse {
		return apierrors.NewForbidden(corev1.Resource("things"), "x",
			errors.New("no relationship found between node and this object"))
	}
	return nil
}

func (b *bed) GetPersistentVolumeClaim(_ context.Context, namespace,
	name string,
) (*corev1.PersistentVolumeClaim, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refused(); err != nil {
		return nil, err
	}
	if b.claim == nil || namespace != b.claim.Namespace || name != b.claim.Name {
		return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
	}
	return b.claim.DeepCopy(), nil
}

func (b *bed) GetPersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refused(); err != nil {
		return nil, err
	}
	if b.volume == nil || b.claim.Spec.VolumeName != name {
		return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumes"), name)
	}
	return b.volume, nil
}

func (b *bed) Take(volume string, alone bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if alone && b.taken[volume] {
		return errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	}
	b.taken[volume] = true
	return nil
}

func (b *bed) Warn(reason, message string) { b.warnings = append(b.warnings, reason+": "+message) }
func (*bed) Alive()                        {}

func (b *bed) Tell(e topic.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.warnings = append(b.warnings, e.Kind+" "+e.Reason+": "+e.Message)
}

func (b *bed) PatchPersistentVolumeClaimStatus(_ context.Context, _, _ string, patch []byte,
) (*corev1.PersistentVolumeClaim, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conflicts > 0 {
		b.conflicts--
		return nil, apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), "data", errors.New("read it again"))
	}
	before, err := json.Marshal(b.claim)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, b.claim)
	if err != nil {
		return nil, err
	}
	b.claim = &corev1.PersistentVolumeClaim{}
	err = json.Unmarshal(after, b.claim)
	return b.claim.DeepCopy(), err
}

// request is that of a pod which mounts the claim at /data, or has it as a device where the volume is one.
func (b *bed) request(uid string) plugin.Request {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod-" + uid, UID: types.UID(uid)},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: "vol", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}},
			Containers: []corev1.Container{{Name: "app", VolumeMounts: []corev1.VolumeMount{{Name: "vol", MountPath: "/data"}}}},
		},
	}
	if b.volume != nil && plugin.IsBlock(b.volume) {
		pod.Spec.Containers[0].VolumeMounts = nil
		pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "vol", DevicePath: "/dev/xvda"}}
	}
	return plugin.Request{Pod: pod, Volume: &pod.Spec.Volumes[0], Calls: b}
}

// mount mounts the claim for the pod.
func (b *bed) mount(r plugin.Request) plugin.Result {
	b.t.Helper()
	result, err := b.kinds.For(r.Volume).Plugin.Mount(b.t.Context(), r)
	must(b.t, err)
	return result
}

// fails expects the reason and the message of the Event that a pod gets.
func (b *bed) fails(r plugin.Request, want string) {
	b.t.Helper()
	_, err := b.kinds.For(r.Volume).Plugin.Mount(b.t.Context(), r)
	got := fmt.Sprint(err)
	var failure *plugin.Failure
	if errors.As(err, &failure) {
		got = failure.Reason + " " + err.Error()
	}
	if got != want {
		b.t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// unmount removes the volume as the daemon does.
func (b *bed) unmount(r plugin.Request, result plugin.Result) {
	b.t.Helper()
	path := result.HostPath + result.Device
	kind, _, ok := b.kinds.ByPath(filepath.Join(b.root, "pods", string(r.Pod.UID)), path)
	if !ok {
		b.t.Fatalf("no kind unmounts %s", path)
	}
	must(b.t, kind.Plugin.Unmount(b.t.Context(), path))
	must(b.t, kind.Plugin.Unmount(b.t.Context(), path))
}

// left are the mounts, and the files that aren't directories, below the root.
func (b *bed) left() string {
	b.t.Helper()
	found, err := mountpoint.Below(b.root)
	must(b.t, err)
	must(b.t, filepath.WalkDir(b.root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, path)
		}
		return err
	}))
	return strings.Join(found, " ")
}

func (b *bed) clean() {
	b.t.Helper()
	if left := b.left(); left != "" {
		b.t.Errorf("left on the node: %s", left)
	}
}

func isMount(t *testing.T, path string) bool {
	t.Helper()
	mounted, err := mounts.Mounted(path)
	must(t, err)
	return mounted
}

// disk is a loop device of 64 MiB.
func disk(t *testing.T) string {
	t.Helper()
	return diskOf(t, 64)
}

// diskOf is a loop device of that size.
func diskOf(t *testing.T, mebibytes int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, mebibytes<<20))
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("this machine has no loop devices to make a disk of: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	return device
}

func localAt(path string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}
}
