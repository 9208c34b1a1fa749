package persistent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/device"
	"kubelot.dev/services/volume/internal/plugin"
)

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("precious"), 0o600))
	b := newBed(t, localAt(dir))
	b.volume.Spec.MountOptions = []string{"nodev"}
	one, two := b.request("u-1"), b.request("u-2")
	two.Volume.PersistentVolumeClaim.ReadOnly = true
	first, second := b.mount(one), b.mount(two)
	if want := filepath.Join(b.root, "pods/u-1/volumes/kubernetes.io~local-volume/pv"); first.HostPath != want ||
		!first.SELinuxRelabel || first.ReadOnly {
		t.Errorf("result %+v, want it at %s", first, want)
	}
	must(t, os.WriteFile(filepath.Join(first.HostPath, "new"), []byte("from one"), 0o600))
	if data, err := os.ReadFile(filepath.Join(second.HostPath, "new")); string(data) != "from one" {
		t.Errorf("the second pod reads %q (%v)", data, err)
	}
	if err := os.WriteFile(filepath.Join(second.HostPath, "new"), nil, 0o600); !errors.Is(err, syscall.EROFS) ||
		!second.ReadOnly {
		t.Errorf("the read-only one could be written to: %v", err)
	}
	// A restart, or another kubelet's mount.
	if again := b.mount(one); untimed(again) != untimed(first) {
		t.Errorf("again: %+v", again)
	}
	b.unmount(one, first)
	if !isMount(t, second.HostPath) {
		t.Error("the other pod has lost its volume")
	}
	b.unmount(two, second)
	b.clean()
	if data, err := os.ReadFile(filepath.Join(dir, "file")); string(data) != "precious" {
		t.Errorf("the data is %q (%v)", data, err)
	}
}

// untimed is the result without when to look at it again.
func untimed(r plugin.Result) plugin.Result {
	r.RefreshAt, r.LookAt = time.Time{}, time.Time{}
	return r
}

func TestDirectoryIsMountedAgainWhereItHasGone(t *testing.T) {
	b := newBed(t, localAt(t.TempDir()))
	r := b.request("u-1")
	r.Known = b.mount(r)
	must(t, mountpoint.Unmount(r.Known.HostPath))
	if result := b.mount(r); untimed(result) != untimed(r.Known) || !isMount(t, result.HostPath) {
		t.Errorf("result %+v", result)
	}
}

func TestWhatIsInTheWayOfAVolumeIsNeverRemoved(t *testing.T) {
	b := newBed(t, localAt(t.TempDir()))
	r := b.request("u-1")
	result := b.mount(r)
	must(t, mountpoint.Unmount(result.HostPath))
	file := filepath.Join(result.HostPath, "somebody's")
	must(t, os.WriteFile(file, nil, 0o600))
	kind, _, _ := b.kinds.ByPath(filepath.Join(b.root, "pods/u-1"), result.HostPath)
	if err := kind.Plugin.Unmount(t.Context(), result.HostPath); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("unmount returned %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestFSGroup(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "sub", "file"), nil, 0o600))
	b := newBed(t, localAt(dir))
	grouped := func(uid string, gid int64, policy corev1.PodFSGroupChangePolicy) string {
		r := b.request(uid)
		r.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &gid, FSGroupChangePolicy: &policy}
		result := b.mount(r)
		defer b.unmount(r, result)
		return modes(t, dir, "", "sub", "sub/file")
	}
	if got, want := grouped("u-1", 4321, corev1.FSGroupChangeAlways), "4321 2775, 4321 2770, 4321 660"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	must(t, os.Chown(filepath.Join(dir, "sub/file"), -1, 1))
	if got, want := grouped("u-2", 4321, corev1.FSGroupChangeOnRootMismatch), "4321 2775, 4321 2770, 1 660"; got != want {
		t.Errorf("on a root that matches: got %s, want %s", got, want)
	}
	if got, want := grouped("u-3", 4321, corev1.FSGroupChangeAlways), "4321 2775, 4321 2770, 4321 660"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := grouped("u-4", 99, corev1.FSGroupChangeOnRootMismatch), "99 2775, 99 2770, 99 660"; got != want {
		t.Errorf("on a root that doesn't match: got %s, want %s", got, want)
	}
	b.mount(b.request("u-5"))
	if got, want := grouped("u-6", 7, corev1.FSGroupChangeAlways), "99 2775, 99 2770, 99 660"; got != want {
		t.Errorf("a volume that another pod has: got %s, want %s", got, want)
	}
	want := "AlreadyMountedVolume: The requested fsGroup is 7, but the volume pv has GID 99. " +
		"The volume may not be shareable."
	if got := strings.Join(b.warnings, "\n"); got != want {
		t.Errorf("Events:\n%s\nwant\n%s", got, want)
	}
}

func modes(t *testing.T, dir string, names ...string) string {
	t.Helper()
	var list []string
	for _, name := range names {
		var stat syscall.Stat_t
		must(t, syscall.Stat(filepath.Join(dir, name), &stat))
		list = append(list, fmt.Sprintf("%d %o", stat.Gid, stat.Mode&0o7777))
	}
	return strings.Join(list, ", ")
}

func TestDisk(t *testing.T) {
	device := disk(t)
	b := newBed(t, localAt(device))
	one, two := b.request("u-1"), b.request("u-2")
	first, second := b.mount(one), b.mount(two)
	must(t, os.WriteFile(filepath.Join(first.HostPath, "file"), []byte("kept"), 0o600))
	if data, err := os.ReadFile(filepath.Join(second.HostPath, "file")); string(data) != "kept" {
		t.Errorf("the second pod reads %q (%v)", data, err)
	}
	point := filepath.Join(b.root, "plugins/kubernetes.io/local-volume/mounts/pv")
	b.unmount(one, first)
	if !isMount(t, point) || !isMount(t, second.HostPath) {
		t.Error("the disk of the second pod is gone")
	}
	b.unmount(two, second)
	b.clean()
	// It has a filesystem now, which isn't made again.
	first = b.mount(one)
	if data, err := os.ReadFile(filepath.Join(first.HostPath, "file")); string(data) != "kept" {
		t.Errorf("after the last pod: %q (%v)", data, err)
	}
	// A restart between the two steps of unmounting.
	must(t, mountpoint.Unmount(first.HostPath))
	must(t, os.Remove(first.HostPath))
	must(t, leftovers(b))
	b.clean()
}

func TestDiskOfAnotherFilesystem(t *testing.T) {
	b := newBed(t, localAt(disk(t)))
	b.volume.Spec.Local.FSType = ptr("nonsense")
	_, err := b.kinds.For(b.request("u-1").Volume).Plugin.Mount(t.Context(), b.request("u-1"))
	if err == nil ||
		!strings.Contains(err.Error(), `MountVolume.MountDevice failed for volume "pv" : local: failed to mount device`) {
		t.Errorf("got %v", err)
	}
	b.clean()
}

func leftovers(b *bed) error {
	return b.kinds.For(b.request("u").Volume).Plugin.(interface{ Leftovers(context.Context) error }).Leftovers(
		b.t.Context())
}

func TestDevice(t *testing.T) {
	path := disk(t)
	link := filepath.Join(t.TempDir(), "disk-by-id")
	must(t, os.Symlink(path, link))
	b := newBed(t, localAt(link))
	b.volume.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock)
	one, two := b.request("u-1"), b.request("u-2")
	two.Volume.PersistentVolumeClaim.ReadOnly = true
	first, second := b.mount(one), b.mount(two)
	if target, err := os.Readlink(first.Device); target != path || first.HostPath != "" || !second.ReadOnly {
		t.Errorf("result %+v, a link to %s (%v), and %+v", first, target, err, second)
	}
	point := filepath.Join(b.root, "plugins/kubernetes.io~local-volume/volumeDevices/pv/u-1")
	loop, err := device.LoopOf(point)
	if err != nil || loop == "" {
		t.Errorf("no loop device holds %s open: %v", point, err)
	}
	one.Known, b.asked = first, 0
	if again := b.mount(one); again != first || b.asked > 0 {
		t.Errorf("again: %+v, asked %d times", again, b.asked)
	}
	said := func(what, path string) string {
		return fmt.Sprintf("Pod SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume \"pv\" %s %q", what,
			filepath.Dir(path))
	}
	if want := []string{
		said("globalMapPath", point), said("volumeMapPath", first.Device),
		said("globalMapPath", point), said("volumeMapPath", second.Device),
	}; !slices.Equal(b.warnings, want) {
		t.Errorf("Events:\n%s\nwant\n%s", strings.Join(b.warnings, "\n"), strings.Join(want, "\n"))
	}
	b.unmount(one, first)
	if loop, _ := device.LoopOf(point); loop != "" {
		t.Errorf("the disk is still held by %s", loop)
	}
	if mapped, err := newLocal(b.root).device("pv", "u-2").Made(); err != nil || !mapped {
		t.Errorf("the second pod has the device: %v %v", mapped, err)
	}
	// A restart while the pod's directory went.
	must(t, os.Remove(second.Device))
	must(t, leftovers(b))
	b.clean()
	if out, err := exec.Command("losetup", "--list", "--noheadings", "--output", "BACK-FILE").Output(); err != nil ||
		strings.Contains(string(out), b.root) {
		t.Errorf("loop devices of %s (%v)", out, err)
	}
}

func TestLocksAreWaitedForWithADeadline(t *testing.T) {
	var l plugin.Locks
	giveBack, err := l.Take(t.Context(), "pv")
	must(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := l.Take(ctx, "pv"); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	other, err := l.Take(t.Context(), "other")
	must(t, err)
	other()
	next := make(chan error)
	go func() {
		giveBack, err := l.Take(t.Context(), "pv")
		if err == nil {
			giveBack()
		}
		next <- err
	}()
	giveBack()
	must(t, <-next)
}
