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
	"kubelot.dev/services/volume/internal/iscsi"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

// Attacher is what disks of the network need of the cluster.
type Attacher interface {
	// Use notes that the node has, or is about to have, the volume of that name at a place; an empty name ends that.
	Use(place, name string)
	// Waits is what the volume waits for before the node may have it; empty for nothing.
	Waits(name string) string
	// Secret is what a secret has.
	Secret(ctx context.Context, namespace, name string) (map[string][]byte, error)
}

// remote are disks of iSCSI targets. Each is attached and mounted once, at its global directory, for all pods.
type remote struct {
	local *local
	disks *iscsi.Disks
	// cluster may be nil.
	cluster Attacher
	// globals are locked while something is done in a global directory.
	globals plugin.Locks
}

// newRemote notes which disks the node has.
func newRemote(l *local, cluster Attacher) *remote {
	d := &remote{local: l, disks: iscsi.NewDisks(l.root, iscsi.OfNode), cluster: cluster}
	for _, block := range []bool{false, true} {
		all, _ := iscsi.Globals(l.root, block) // they are noted when a pod asks for them
		for _, global := range all {
			if disk, err := iscsi.Read(global); err == nil {
				d.use(global, disk.Attached)
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
	return plugin.List{
		{
			Name: iscsi.Name, Dir: iscsi.Dir, Plugin: d,
			Claims: func(v *corev1.Volume) bool { return v.ISCSI != nil },
		},
		{Name: iscsi.Name, Dir: iscsi.Dir, Block: true, Plugin: remoteDevices{d}},
	}
}

// Mount mounts a volume of the pod's own spec.
func (d *remote) Mount(ctx context.Context, r plugin.Request) (plugin.Result, error) {
	result, err := d.mountFilesystem(ctx, r, ownDisk(r))
	result.ReadOnly = err == nil && r.Volume.ISCSI.ReadOnly
	return result, err
}

// ownDisk is the disk of a pod that names it itself, as a persistent volume.
func ownDisk(r plugin.Request) bound {
	s := r.Volume.ISCSI
	source := &corev1.ISCSIPersistentVolumeSource{
		TargetPortal: s.TargetPortal, IQN: s.IQN, Lun: s.Lun, ISCSIInterface: s.ISCSIInterface, FSType: s.FSType,
		ReadOnly: s.ReadOnly, Portals: s.Portals, DiscoveryCHAPAuth: s.DiscoveryCHAPAuth,
		SessionCHAPAuth: s.SessionCHAPAuth, InitiatorName: s.InitiatorName,
	}
	if s.SecretRef != nil {
		source.SecretRef = &corev1.SecretReference{Name: s.SecretRef.Name, Namespace: r.Pod.Namespace}
	}
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{ISCSI: source},
	}}
	pv.Name = r.Volume.Name
	return bound{volume: pv, readOnly: s.ReadOnly}
}

// place is where the pod has the disk: its directory, or the link to the device.
func (d *remote) place(uid string, block bool, volume string) string {
	return plugin.Kind{Dir: iscsi.Dir, Block: block}.VolumeDir(filepath.Join(d.local.root, "pods", uid), volume)
}

// mountFilesystem makes the disk appear in the pod's directory.
func (d *remote) mountFilesystem(ctx context.Context, r plugin.Request, b bound) (plugin.Result, error) {
	dir := d.place(string(r.Pod.UID), false, b.volume.Name)
	result := plugin.Result{HostPath: dir, Plugin: iscsi.Name, SELinuxRelabel: true}
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
		return result, nil
	}
	if err != nil {
		return plugin.Result{}, err
	}
	global := disk.Global(d.local.root, false)
	giveBack, err := d.globals.Take(ctx, global)
	if err != nil {
		return plugin.Result{}, b.failed("MountDevice", "", err)
	}
	defer giveBack()
	d.use(global, disk.Attached)
	if err = d.mountGlobal(ctx, r, b, disk, global); err == nil {
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
func (d *remote) mayAttach(b bound, place string) (iscsi.Disk, error) {
	disk, err := iscsi.New(b.volume.Name, b.volume.Spec.ISCSI)
	if err != nil {
		return disk, b.failed("NewMounter initialization", "NewBlockVolumeMapper initialization", err)
	}
	d.use(place, disk.Attached)
	if d.cluster == nil {
		return disk, nil
	}
	if waits := d.cluster.Waits(disk.Attached); waits != "" {
		failure := b.failed("WaitForAttach", "WaitForAttach", errors.New(waits))
		failure.OnItsWay = true
		return disk, failure
	}
	return disk, nil
}

// mountGlobal attaches the disk and mounts it, unless that is done. It is called with the lock.
func (d *remote) mountGlobal(ctx context.Context, r plugin.Request, b bound, disk iscsi.Disk, global string) error {
	if mounted, err := mountpoint.Mounted(global); err != nil || mounted {
		return err
	}
	path, err := d.attach(ctx, r, b, disk, global)
	if err != nil {
		return b.failed("WaitForAttach", "", err)
	}
	if err := d.local.mountDisk(b, path, global); err != nil {
		return b.failed("MountDevice", "", err)
	}
	return nil
}

func (d *remote) attach(ctx context.Context, r plugin.Request, b bound, disk iscsi.Disk, global string,
) (string, error) {
	secret := map[string]string{}
	if ref := b.volume.Spec.ISCSI.SecretRef; ref != nil && disk.NeedsSecret() {
		if d.cluster == nil {
			return "", errors.New("its secret can't be read without a cluster")
		}
		namespace := ref.Namespace
		if namespace == "" {
			namespace = r.Pod.Namespace
		}
		data, err := d.cluster.Secret(ctx, namespace, ref.Name)
		if err != nil {
			return "", err
		}
		for key, value := range data {
			secret[key] = string(value)
		}
	}
	return d.disks.Attach(ctx, disk, global, secret, r.Calls.Alive)
}

// Unmount takes the disk from a pod, and detaches it when no other pod has it.
func (d *remote) Unmount(ctx context.Context, dir string) error {
	shared, err := mountpoint.Shared(dir, iscsi.Top(d.local.root))
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

// releaseUnfinished detaches the disks of volumes of that name that didn't come as far as a pod's directory. Whoever is
// at work on one now does it himself if he fails.
func (d *remote) releaseUnfinished(ctx context.Context, volume string) error {
	all, err := iscsi.Globals(d.local.root, false)
	if err != nil {
		return err
	}
	atOnce, cancel := context.WithCancel(ctx)
	cancel()
	var errs []error
	for _, global := range all {
		if mounted, err := mountpoint.Mounted(global); err != nil || mounted {
			continue
		}
		disk, err := iscsi.Read(global)
		if err != nil || disk.VolName != volume {
			continue
		}
		if giveBack, err := d.globals.Take(atOnce, global); err == nil {
			errs = append(errs, d.release(ctx, global))
			giveBack()
		}
	}
	return errors.Join(errs...)
}

func (d *remote) locked(ctx context.Context, global string, do func(context.Context, string) error) error {
	giveBack, err := d.globals.Take(ctx, global)
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
	return d.detach(ctx, global)
}

func (d *remote) detach(ctx context.Context, global string) error {
	if err := d.disks.Detach(ctx, global); err != nil {
		return err
	}
	d.use(global, "")
	return device.RemoveEmpty(filepath.Dir(global))
}

// leftoverLimit is how long the disks that no pod has may take to be detached after the start.
const leftoverLimit = time.Minute

// Leftovers detaches the disks that no pod has: somebody was killed between taking one from its last pod and this.
func (d *remote) Leftovers(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), leftoverLimit,
		fmt.Errorf("the disks that no pod has are not detached after %s", leftoverLimit))
	defer cancel()
	var errs []error
	for block, release := range map[bool]func(context.Context, string) error{
		false: d.release, true: d.releaseDevice,
	} {
		all, err := iscsi.Globals(d.local.root, block)
		errs = append(errs, err)
		for _, global := range all {
			errs = append(errs, d.locked(ctx, global, release))
		}
	}
	return errors.Join(errs...)
}
