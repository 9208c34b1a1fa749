package persistent

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/volume/internal/fc"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/scsi"
)

const (
	testWWN    = "500a0981891b8dc5"
	fabricName = "kubernetes.io/fc/[" + testWWN + "]:3"
)

// fabric is a node that finds a disk once it looks for it, and can take it away.
type fabric struct {
	*bed
	c   *cluster
	dir string
	// disk is the name of its device.
	disk string
}

func fabricBed(t *testing.T) *fabric {
	lun := int32(3)
	f := &fabric{
		bed: newBed(t, corev1.PersistentVolumeSource{FC: &corev1.FCVolumeSource{
			TargetWWNs: []string{testWWN}, Lun: &lun, FSType: "ext4",
		}}),
		c: &cluster{used: map[string]string{}}, dir: t.TempDir(),
	}
	device := disk(t)
	f.disk = filepath.Base(device)
	must(t, os.MkdirAll(filepath.Join(f.dir, "by-path"), 0o755))
	for _, file := range []string{"class/scsi_host/host3/scan", "block/" + f.disk + "/device/delete"} {
		path := filepath.Join(f.dir, "sys", file)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, 0o600))
	}
	var kernel sync.WaitGroup
	kernel.Go(func() { f.finds(device) })
	t.Cleanup(kernel.Wait)
	f.restart()
	return f
}

// finds shows the disk when it is looked for, until the test ends.
func (f *fabric) finds(device string) {
	for ; f.t.Context().Err() == nil; time.Sleep(10 * time.Millisecond) {
		if said, err := os.ReadFile(filepath.Join(f.dir, "sys/class/scsi_host/host3/scan")); err == nil && len(said) > 0 {
			_ = os.Symlink(device, filepath.Join(f.dir, "by-path/pci-0000:41:00.0-fc-0x"+testWWN+"-lun-3"))
		}
	}
}

// restart is another start of the daemon.
func (f *fabric) restart() {
	f.kinds = Kinds(f.root, f.bed, nil, f.c)
	for _, k := range f.kinds {
		if r, ok := k.Plugin.(*remote); ok {
			if _, ok := r.network.(fcDisks); ok {
				disks := fc.NewDisks(f.root, scsi.Places{
					Sys: filepath.Join(f.dir, "sys"), Dev: "/dev", ByPath: filepath.Join(f.dir, "by-path"),
				})
				disks.DeviceWait = time.Minute
				r.network = fcDisks{disks, f.root}
			}
		}
	}
}

// over expects that the disk was taken away, that the node uses none, and that nothing is left on it.
func (f *fabric) over() {
	f.t.Helper()
	f.clean()
	if said, err := os.ReadFile(filepath.Join(f.dir, "sys/block", f.disk, "device/delete")); string(said) != "1" {
		f.t.Errorf("the kernel was told %q about the disk, %v", said, err)
	}
	if len(f.c.used) > 0 {
		f.t.Errorf("the node is said to use %v", f.c.used)
	}
	if left, err := mounts.Names(fc.Top(f.root)); err != nil || len(left) > 0 && left[0] != "volumeDevices" {
		f.t.Errorf("global directories are left: %q, %v", left, err)
	}
}

func TestFabricDisk(t *testing.T) {
	f := fabricBed(t)
	one, two := f.request("u-1"), f.request("u-2")
	two.Volume.PersistentVolumeClaim.ReadOnly = true
	group := int64(4711)
	one.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	first, second := f.mount(one), f.mount(two)
	if want := filepath.Join(f.root, "pods/u-1/volumes/kubernetes.io~fc/pv"); first.HostPath != want ||
		first.Plugin != fc.Name || second.ReadOnly != true {
		t.Errorf("results %+v and %+v, want the first at %s", first, second, want)
	}
	must(t, os.WriteFile(filepath.Join(first.HostPath, "file"), []byte("x"), 0o600))
	if data, err := os.ReadFile(filepath.Join(second.HostPath, "file")); string(data) != "x" {
		t.Errorf("the second pod reads %q, %v", data, err)
	}
	if info, err := os.Stat(first.HostPath); err != nil || groupOf(info) != group {
		t.Errorf("the group is wrong: %v, %v", info, err)
	}
	if len(f.c.used) != 3 || f.c.used[first.HostPath] != fabricName {
		t.Errorf("the node uses %v", f.c.used)
	}
	f.restart()
	one.Known = first
	if again := f.mount(one); untimed(again) != untimed(first) {
		t.Errorf("again: %+v", again)
	}
	f.unmount(one, first)
	if !isMount(t, second.HostPath) {
		t.Error("the other pod has lost its volume")
	}
	f.unmount(two, second)
	f.over()
}

// Unlike a local volume it gets the group of each pod that mounts it.
func TestFabricDiskHasTheLastPodsGroup(t *testing.T) {
	f := fabricBed(t)
	one, two := f.request("u-1"), f.request("u-2")
	groups := []int64{4711, 4712}
	one.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &groups[0]}
	two.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &groups[1]}
	first, second := f.mount(one), f.mount(two)
	if info, err := os.Stat(second.HostPath); err != nil || groupOf(info) != groups[1] {
		t.Errorf("the group is wrong: %v, %v", info, err)
	}
	f.unmount(one, first)
	f.unmount(two, second)
	f.over()
}

func TestFabricDiskOfAPodItself(t *testing.T) {
	f := fabricBed(t)
	one, two := f.request("u-1"), f.request("u-2")
	for _, r := range []plugin.Request{one, two} {
		r.Volume.VolumeSource = corev1.VolumeSource{FC: f.volume.Spec.FC.DeepCopy()}
	}
	two.Volume.FC.ReadOnly = true
	first, second := f.mount(one), f.mount(two)
	if first.ReadOnly || !second.ReadOnly || !strings.HasSuffix(first.HostPath, "u-1/volumes/kubernetes.io~fc/vol") {
		t.Errorf("results %+v and %+v", first, second)
	}
	f.restart()
	f.unmount(two, second)
	f.unmount(one, first)
	f.over()
}

func TestFabricDiskWaitsUntilItIsAttached(t *testing.T) {
	f := fabricBed(t)
	f.c.waits = "volume x is not in the Node's status.volumesAttached yet"
	r := f.request("u-1")
	f.fails(r, `FailedMount MountVolume.WaitForAttach failed for volume "pv" : `+f.c.waits)
	if said, err := os.ReadFile(filepath.Join(f.dir, "sys/class/scsi_host/host3/scan")); err != nil || len(said) > 0 {
		t.Errorf("it is looked for before it is attached: %q, %v", said, err)
	}
	f.c.waits = ""
	f.unmount(r, f.mount(r))
	f.over()
}

func TestFabricDevice(t *testing.T) {
	f := fabricBed(t)
	f.volume.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock)
	r := f.request("u-1")
	result := f.mount(r)
	if want := filepath.Join(f.root, "pods/u-1/volumeDevices/kubernetes.io~fc/pv"); result.Device != want {
		t.Errorf("result %+v, want it at %s", result, want)
	}
	if device, err := filepath.EvalSymlinks(result.Device); err != nil || filepath.Base(device) != f.disk {
		t.Errorf("the link leads to %s, %v", device, err)
	}
	f.restart()
	r.Known = result
	if again := f.mount(r); untimed(again) != untimed(result) {
		t.Errorf("again: %+v", again)
	}
	f.unmount(r, result)
	f.over()
}

// A disk that can't be taken away when its last pod has given back the device is taken away later, also by the next
// process.
func TestFabricDeviceThatStaysAtFirst(t *testing.T) {
	f := fabricBed(t)
	f.volume.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock)
	r := f.request("u-1")
	result := f.mount(r)
	file := filepath.Join(f.dir, "sys/block", f.disk, "device/delete")
	must(t, os.Remove(file))
	must(t, os.Mkdir(file, 0o755)) // nobody can write to it
	kind, _, _ := f.kinds.ByPath(filepath.Join(f.root, "pods/u-1"), result.Device)
	for range 2 {
		if err := kind.Plugin.Unmount(t.Context(), result.Device); err == nil {
			t.Error("no error, though the disk is still there")
		}
		f.c.used = map[string]string{}
		f.restart()
		if len(f.c.used) != 1 {
			t.Errorf("after a restart the node is said to use %v", f.c.used)
		}
		kind, _, _ = f.kinds.ByPath(filepath.Join(f.root, "pods/u-1"), result.Device)
	}
	must(t, os.Remove(file))
	must(t, os.WriteFile(file, nil, 0o600))
	f.unmount(r, result)
	f.over()
}

// A kubelet has mounted the disk and left no record of its own.
func TestFabricDiskOfAKubelet(t *testing.T) {
	f := fabricBed(t)
	r := f.request("u-1")
	result := f.mount(r)
	must(t, os.Remove(scsi.Beside(filepath.Join(fc.Top(f.root), testWWN+"-lun-3"))))
	f.c.used = map[string]string{}
	f.restart()
	if global := filepath.Join(fc.Top(f.root), testWWN+"-lun-3"); f.c.used[global] != fabricName {
		t.Errorf("after the start the node uses %v", f.c.used)
	}
	f.unmount(r, plugin.Result{HostPath: result.HostPath})
	f.over()
}

func TestFabricDiskOfNobody(t *testing.T) {
	f := fabricBed(t)
	f.volume.Spec.FC = &corev1.FCVolumeSource{}
	f.fails(f.request("u-1"), `FailedMount MountVolume.NewMounter initialization failed for volume "pv" : `+
		"no fc disk information found: the volume has neither targetWWNs with a lun, nor wwids")
}
