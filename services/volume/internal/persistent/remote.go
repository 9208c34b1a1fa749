package persistent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/device"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/selinux"
)

// Attacher is what disks of the network need of the cluster.
type Attacher interface {
	// Use notes that the node has, or is about to have, the volume of that name at a place; an empty name ends that.
	Use(place, name string)
	// Waits is what the volume waits for before the node may have it; empty for nothing.
	Waits(name string) string
	// Secret is what a secret has.
	Secret(ctx context.Context, namespace, name string) (map[string][]byte, error)
	// Labels say with which SELinux labels volumes are mounted.
	Labels() *selinux.Book
}

// remote are disks of a network. Each is attached and mounted once, at its global directory, for all pods.
type remote struct {
	network
	local *local
	// cluster may be nil.
	cluster Attacher
	// labelAt is the SELinux label that what is mounted at a path was mounted with.
	labelAt func(path string) (string, error)
	// locks are of global directories, held while something is done in one.
	locks plugin.Locks
}

// newRemote notes which disks the node has.
func newRemote(n network, l *local, cluster Attacher) *remote {
	d := &remote{network: n, local: l, cluster: cluster, labelAt: selinux.Mounted}
	for _, block := range []bool{false, true} {
		all, _ := n.globals(block) // they are noted when a pod asks for them
		for _, global := range all {
			if disk, err := n.read(global); err == nil {
				d.use(global, disk.attached)
			}
		}
	}
	return d
}

func (d *remote) use(place, name string) {
	if d.cluster != nil {
		d.cluster.Use(place, name)
	}
}

func (d *remote) kinds() plugin.List {
	mounted, mapped := d.kind(), d.kind()
	mounted.Plugin = d
	mapped.Plugin, mapped.Block, mapped.Claims = remoteDevices{d}, true, nil
	return plugin.List{mounted, mapped}
}

// Mount mounts a volume of the pod's own spec.
func (d *remote) Mount(ctx context.Context, r plugin.Request) (plugin.Result, error) {
	source, readOnly := d.own(r)
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
	pv.Name = r.Volume.Name
	result, err := d.mountFilesystem(ctx, r, bound{volume: pv, readOnly: readOnly})
	result.ReadOnly = err == nil && readOnly
	return result, err
}

// place is where the pod has the disk: its directory, or the link to the device.
func (d *remote) place(uid string, block bool, volume string) string {
	kind := d.kind()
	kind.Block = block
	return kind.VolumeDir(filepath.Join(d.local.root, "pods", uid), volume)
}

// bringUp gives the pod the disk that its claim names.
func (d *remote) bringUp(ctx context.Context, r plugin.Request, b bound) (plugin.Result, error) {
	if b.block {
		return d.mapDevice(ctx, r, b)
	}
	return d.mountFilesystem(ctx, r, b)
}

// mountFilesystem makes the disk appear in the pod's directory.
func (d *remote) mountFilesystem(ctx context.Context, r plugin.Request, b bound) (plugin.Result, error) {
	dir := d.place(string(r.Pod.UID), false, b.volume.Name)
	result := plugin.Result{HostPath: dir, Plugin: d.kind().Name, SELinuxRelabel: true}
	mounted, err := mountpoint.Mounted(dir)
	if err == nil && !mounted && r.Ending {
		return plugin.Result{}, plugin.ErrNotMounted
	}
	if err == nil && !mounted {
		err = os.MkdirAll(dir, 0o750)
	}
	if err != nil {
		return plugin.Result{}, b.failed("SetUp", "", err)
	}
	disk, err := d.mayAttach(b, dir)
	if mounted {
		result.SELinuxRelabel = d.relabels(dir)
		return result, nil
	}
	if err == nil {
		b.label, err = d.label(r, b, disk)
	}
	if err != nil {
		return plugin.Result{}, err
	}
	result.SELinuxRelabel = b.label == ""
	global := disk.mounted
	giveBack, err := d.locks.Take(ctx, global)
	if err != nil {
		return plugin.Result{}, b.failed("MountDevice", "", err)
	}
	defer giveBack()
	d.use(global, disk.attached)
	if err = d.mountGlobal(ctx, r, b, disk); err == nil {
		err = d.local.bind(ctx, r, b, global, dir)
	}
	if err != nil {
		// Should this fail it is done again when the pod goes, or at the next start.
		_ = d.release(context.WithoutCancel(ctx), global)
		return plugin.Result{}, err
	}
	return result, nil
}

// mayAttach is the disk if the node may have it, which the place in the pod's directory shows that the pod wants.
func (d *remote) mayAttach(b bound, place string) (netDisk, error) {
	disk, err := d.disk(b.volume)
	if err != nil {
		return disk, b.failed("NewMounter initialization", "NewBlockVolumeMapper initialization", err)
	}
	d.use(place, disk.attached)
	if d.cluster == nil {
		return disk, nil
	}
	if waits := d.cluster.Waits(disk.attached); waits != "" {
		failure := b.failed("WaitForAttach", "WaitForAttach", errors.New(waits))
		failure.OnItsWay, failure.Unattached = true, true
		return disk, failure
	}
	return disk, nil
}

// mountGlobal attaches the disk and mounts it, unless that is done. It is called with the lock.
func (d *remote) mountGlobal(ctx context.Context, r plugin.Request, b bound, disk netDisk) error {
	if mounted, err := d.mountedAs(b, disk); err != nil || mounted {
		return err
	}
	path, err := d.attach(ctx, r, b.volume, disk.mounted)
	if err != nil {
		return b.failed("WaitForAttach", "", err)
	}
	if err := d.local.mountDisk(b, path, disk.mounted); err != nil {
		return b.failed("MountDevice", "", err)
	}
	return nil
}

// Unmount takes the disk from a pod, and detaches it when no other pod has it.
func (d *remote) Unmount(ctx context.Context, dir string) error {
	shared, err := mountpoint.Shared(dir, d.top())
	if err != nil {
		return err
	}
	if err := mounts.UnmountAndRemove(dir); err != nil {
		return err
	}
	d.use(dir, "")
	if len(shared) == 0 {
		return d.releaseUnfinished(ctx, filepath.Base(dir))
	}
	var errs []error
	for _, global := range shared {
		errs = append(errs, d.locked(ctx, global, d.release))
	}
	return errors.Join(errs...)
}

// releaseUnfinished detaches the disks of volumes of that name that no pod has: those that didn't come as far as a
// pod's directory, and those that couldn't be unmounted or detached when their last pod went. A kubelet leaves some
// without a name. Whoever is at work on one now does it himself if he fails.
func (d *remote) releaseUnfinished(ctx context.Context, volume string) error {
	all, err := d.globals(false)
	if err != nil {
		return err
	}
	atOnce, cancel := context.WithCancel(ctx)
	cancel()
	var errs []error
	for _, global := range all {
		disk, err := d.read(global)
		if err != nil || disk.volume != volume && disk.volume != "" {
			continue
		}
		if giveBack, err := d.locks.Take(atOnce, global); err == nil {
			errs = append(errs, d.release(ctx, global))
			giveBack()
		}
	}
	return errors.Join(errs...)
}

func (d *remote) locked(ctx context.Context, global string, do func(context.Context, string) error) error {
	giveBack, err := d.locks.Take(ctx, global)
	if err != nil {
		return err
	}
	defer giveBack()
	return do(ctx, global)
}

// release unmounts and detaches a disk that no pod has. It is called with the lock.
func (d *remote) release(ctx context.Context, global string) error {
	users, err := mountpoint.Shared(global, filepath.Join(d.local.root, "pods"))
	if err != nil || len(users) > 0 {
		return err
	}
	if err := mounts.UnmountBelow(global); err != nil {
		return err
	}
	return d.takeAway(ctx, "unmount_device", global)
}

func (d *remote) takeAway(ctx context.Context, operation, global string) error {
	ended := plugin.Operation(ctx, operation, d.kind().Name)
	err := d.detach(ctx, global)
	if ended(err); err != nil {
		return err
	}
	d.use(global, "")
	return device.RemoveEmpty(filepath.Dir(global))
}

// leftoverLimit is how long the disks that no pod has may take to be detached after the start.
const leftoverLimit = time.Minute

// Leftovers detaches the disks that no pod has: somebody was killed between taking one from its last pod and this. Pods
// that wait for it are told of its calls.
func (d *remote) Leftovers(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(plugin.Watched(context.WithoutCancel(ctx), "", nil), leftoverLimit,
		fmt.Errorf("the disks that no pod has are not detached after %s", leftoverLimit))
	defer cancel()
	var errs []error
	for block, release := range map[bool]func(context.Context, string) error{
		false: d.release, true: d.releaseDevice,
	} {
		all, err := d.globals(block)
		errs = append(errs, err)
		for _, global := range all {
			errs = append(errs, d.locked(ctx, global, release))
		}
	}
	return errors.Join(errs...)
}
