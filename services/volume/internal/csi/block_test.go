package csi

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/device"
)

// newBlockBed is a bed whose driver publishes a disk.
func newBlockBed(t *testing.T) *bed {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 1<<20)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("this machine has no loop devices to make a disk of: %v: %s", err, out)
	}
	b := newBed(t, unattached())
	b.node.disk = strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", strings.TrimSpace(string(out))).Run() })
	return b
}

// devicesDir is where the volume's devices are.
func (b *bed) devicesDir() string {
	return filepath.Join(b.root, "plugins/kubernetes.io/csi/volumeDevices")
}

func (b *bed) link(uid string) string {
	return filepath.Join(b.root, "pods", uid, "volumeDevices/kubernetes.io~csi/pv")
}

// claimsDevice maps the volume for the pod.
func (b *bed) claimsDevice(uid, want string) {
	b.t.Helper()
	block := corev1.PersistentVolumeBlock
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.VolumeMode = &block
	result := b.claimsVolume(uid, pv, want)
	if want != "" {
		return
	}
	if result.Device != b.link(uid) || result.HostPath != "" {
		b.t.Errorf("the result is %+v", result)
	}
	if is, err := device.IsDisk(result.Device); !is || err != nil {
		b.t.Errorf("the link leads to no disk: %v", err)
	}
	if place := b.volumes.InPlace(result.Device); !place.OfDriver || !place.There {
		b.t.Errorf("it is in place: %+v", place)
	}
	if loop, err := device.LoopOf(filepath.Join(b.devicesDir(), "pv/dev", uid)); loop == "" || err != nil {
		b.t.Errorf("no loop device holds the disk: %v", err)
	}
}

func (b *bed) givesDevice(uid, want string) {
	b.t.Helper()
	err := devices{b.volumes}.Unmount(b.t.Context(), b.link(uid))
	if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
		b.t.Errorf("unmap for %s: %v; want %q", uid, err, want)
	}
	if err != nil {
		return
	}
	for _, path := range []string{
		b.link(uid), filepath.Join(b.root, "pods", uid, "plugins"), filepath.Join(b.devicesDir(), "pv/dev", uid),
		filepath.Join(b.devicesDir(), "publish/pv", uid),
	} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			b.t.Errorf("%s is left: %v", path, err)
		}
	}
}

// unstagesDevice unstages the volume, if that is due.
func (b *bed) unstagesDevice() {
	b.t.Helper()
	b.volumes.unstageIfUnusedOrFail(b.t, filepath.Join(b.devicesDir(), "pv/data"))
}

// nothingIsLeft checks that no file and no loop device of the bed is left.
func (b *bed) nothingIsLeft() {
	b.t.Helper()
	err := filepath.WalkDir(b.root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && path != filepath.Join(b.root, "s") {
			b.t.Errorf("%s is left", path)
		}
		return err
	})
	out, listErr := exec.Command("losetup", "--list", "--noheadings", "--output", "BACK-FILE").CombinedOutput()
	if err != nil || listErr != nil || strings.Contains(string(out), b.root) {
		b.t.Errorf("loop devices %s: %v, %v", out, listErr, err)
	}
}

func TestDevice(t *testing.T) {
	b := newBlockBed(t)
	b.claimsDevice("u1", "")
	r := b.node.last
	if r.GetStagingTargetPath() != filepath.Join(b.devicesDir(), "staging/pv") ||
		r.GetTargetPath() != filepath.Join(b.devicesDir(), "publish/pv/u1") || r.GetVolumeCapability().GetMount() != nil {
		t.Errorf("request %v", r)
	}
	data, err := os.ReadFile(filepath.Join(b.devicesDir(), "pv/data/vol_data.json"))
	var content map[string]string
	if err == nil {
		err = json.Unmarshal(data, &content)
	}
	if err != nil || content["specVolID"] != "pv" || content["volumeHandle"] != "h/1" || content["driverName"] != "d" ||
		content["nodeName"] != "n1" || content["attachmentID"] == "" {
		t.Errorf("%s, %v", data, err)
	}
	b.claimsDevice("u2", "")
	b.restart()
	b.claimsDevice("u1", "") // nothing to do
	const mapped = `SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume "pv" `
	if want := []string{
		mapped + `globalMapPath "` + b.devicesDir() + `/pv/dev"`,
		mapped + `volumeMapPath "` + filepath.Dir(b.link("u1")) + `"`,
		mapped + `globalMapPath "` + b.devicesDir() + `/pv/dev"`,
		mapped + `volumeMapPath "` + filepath.Dir(b.link("u2")) + `"`,
	}; !slices.Equal(b.told, want) {
		t.Errorf("Events:\n%s\nwant\n%s", strings.Join(b.told, "\n"), strings.Join(want, "\n"))
	}
	b.givesDevice("u1", "")
	b.unstagesDevice() // not due
	b.givesDevice("u2", "")
	b.givesDevice("u2", "")
	b.calls("stage", "publish", "publish", "unpublish", "unpublish")
	b.unstagesDevice()
	b.calls("stage", "publish", "publish", "unpublish", "unpublish", "unstage")
	b.nothingIsLeft()
}

// Whatever the driver answers, and wherever a process ends, nothing is left of the volume once its pod has gone.
func TestDeviceWithoutLuck(t *testing.T) {
	for _, method := range []string{"stage", "publish", "unpublish", "unstage"} {
		for _, code := range []codes.Code{codes.Internal, codes.Unavailable} {
			for _, done := range []bool{false, true} {
				t.Run(method+" "+code.String(), func(t *testing.T) {
					b := newBlockBed(t)
					b.node.done = done && code == codes.Unavailable
					b.node.answers[method] = []error{status.Error(code, "no")}
					if method == "stage" || method == "publish" {
						b.claimsDevice("u1", "no")
						b.restart()
						if code == codes.Internal {
							b.claimsDevice("u1", "")
						}
						b.givesDevice("u1", "")
						b.unstagesDevice()
						b.nothingIsLeft()
						return
					}
					b.claimsDevice("u1", "")
					if method == "unpublish" {
						b.givesDevice("u1", "no")
						b.restart()
					}
					b.givesDevice("u1", "")
					if method == "unstage" {
						if err := b.volumes.unstageIfUnused(t.Context(), filepath.Join(b.devicesDir(), "pv/data")); err == nil {
							t.Error("it is unstaged")
						}
						b.restart()
					}
					b.unstagesDevice()
					b.nothingIsLeft()
				})
			}
		}
	}
}

// A volume of which no process of kubelot knows: the kubelet has no record for each pod.
func TestDeviceOfTheKubelet(t *testing.T) {
	b := newBlockBed(t)
	for _, uid := range []string{"u1", "u2"} {
		b.claimsDevice(uid, "")
		if err := os.RemoveAll(filepath.Join(b.root, "pods", uid, "plugins")); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(b.devicesDir(), "pv/data/vol_data.json")
	data, err := json.Marshal(record{"specVolID": "pv", "volumeHandle": "h/1", "driverName": "d", "nodeName": "n1"})
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.restart()
	if err := b.volumes.unstageIfUnused(t.Context(), filepath.Dir(path)); err == nil ||
		!strings.Contains(err.Error(), "in use at") {
		t.Errorf("unstaged: %v", err)
	}
	b.claimsDevice("u1", "")
	b.givesDevice("u2", "")
	b.givesDevice("u1", "")
	b.unstagesDevice()
	b.calls("stage", "publish", "publish", "stage", "publish", "unpublish", "unpublish", "unstage")
	b.nothingIsLeft()
}

// A driver that publishes no block device is found out, and the pod waits.
func TestNoDevice(t *testing.T) {
	b := newBlockBed(t)
	b.node.disk = ""
	b.claimsDevice("u1", "MapVolume.MapBlockVolume failed for volume \"pv\" : the driver has published no block device")
	b.givesDevice("u1", "")
	b.unstagesDevice()
	b.nothingIsLeft()
}

// A link of which nothing is known goes, unless something is mounted.
func TestLinkWithoutARecord(t *testing.T) {
	b := newBlockBed(t)
	m := device.Map{Link: b.link("u1"), Point: filepath.Join(b.devicesDir(), "pv/dev/u1")}
	if err := m.MakeLink("/nowhere"); err != nil {
		t.Fatal(err)
	}
	b.givesDevice("u1", "")
	if err := m.Make(b.node.disk, false); err != nil {
		t.Fatal(err)
	}
	b.givesDevice("u1", "")
	b.nothingIsLeft()
	target := filepath.Join(b.devicesDir(), "publish/pv/u1")
	if err := errors.Join(
		m.MakeLink(target), os.MkdirAll(filepath.Dir(target), 0o750), b.node.publishDisk(target),
	); err != nil {
		t.Fatal(err)
	}
	b.givesDevice("u1", "it is not known which driver has mounted "+target)
	b.claimsDevice("u1", "")
	b.givesDevice("u1", "")
}

// The directory of a pod that had a device is gone, as after a reboot: it is taken from the pod nevertheless.
func TestPodDirectoryIsGone(t *testing.T) {
	for _, left := range []string{"publish", "dev"} {
		b := newBlockBed(t)
		b.claimsDevice("u1", "")
		b.claimsDevice("u2", "")
		if left == "dev" {
			// The driver has taken it back before.
			target := filepath.Join(b.devicesDir(), "publish/pv/u1")
			if err := errors.Join(mountpoint.Unmount(target), os.Remove(target)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(filepath.Join(b.root, "pods/u1")); err != nil {
			t.Fatal(err)
		}
		b.restart()
		b.unstagesDevice()
		if _, err := os.Lstat(filepath.Join(b.devicesDir(), "pv/dev/u1")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the first pod has the device still: %v", err)
		}
		b.claimsDevice("u2", "")
		b.givesDevice("u2", "")
		b.unstagesDevice()
		b.nothingIsLeft()
	}
}

// What a driver leaves where it has staged a device is in nobody's way.
func TestLeftInTheStagingDirectory(t *testing.T) {
	b := newBlockBed(t)
	b.claimsDevice("u1", "")
	if err := os.WriteFile(filepath.Join(b.devicesDir(), "staging/pv/note"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.givesDevice("u1", "")
	b.unstagesDevice()
	b.nothingIsLeft()
}

// A driver that stages nothing leaves a record of the volume for the kubelet too.
func TestDeviceThatIsNotStaged(t *testing.T) {
	b := newBlockBed(t)
	b.node.stages = false
	b.claimsDevice("u1", "")
	path := filepath.Join(b.devicesDir(), "pv/data/vol_data.json")
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
	b.givesDevice("u1", "")
	b.unstagesDevice()
	b.calls("publish", "unpublish")
	b.nothingIsLeft()
}
