package persistent

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/volume/internal/device"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/payload"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/selinux"
)

// filesystems are local volumes that pods see as directories.
type filesystems struct{ local *local }

// Mount isn't called: pods name claims, not volumes.
func (filesystems) Mount(context.Context, plugin.Request) (plugin.Result, error) {
	return plugin.Result{}, plugin.ErrUnsupported
}

// Unmount takes the volume from a pod, and its disk from its mount point when no other pod has it.
func (f filesystems) Unmount(ctx context.Context, dir string) error {
	volume := filepath.Base(dir)
	giveBack, err := f.local.volumes.Take(ctx, volume)
	if err != nil {
		return err
	}
	defer giveBack()
	return f.local.unmount(ctx, volume, dir)
}

// unmount is called with the volume's lock. The pod's directory goes before the disk is unmounted: what an interruption
// leaves of the disk is found by Leftovers.
func (l *local) unmount(ctx context.Context, volume, dir string) error {
	if err := mounts.UnmountAndRemove(dir); err != nil {
		return err
	}
	return l.unmountUnused(ctx, volume)
}

// unmountUnused unmounts a disk that no pod uses.
func (l *local) unmountUnused(ctx context.Context, volume string) error {
	users, err := l.users(volume, false)
	if err != nil || len(users) > 0 {
		return err
	}
	ended := plugin.Operation(ctx, "unmount_device", localName)
	err = mounts.UnmountAndRemove(l.mountPoint(volume))
	ended(err)
	return err
}

// mountFilesystem makes a directory or disk appear in the pod's directory.
func (l *local) mountFilesystem(ctx context.Context, r plugin.Request, b bound) (plugin.Result, error) {
	path, err := b.path()
	if err != nil {
		return plugin.Result{}, err
	}
	disk, err := device.IsDisk(path)
	if err != nil {
		return plugin.Result{}, b.failed("NewMounter initialization", "", err)
	}
	giveBack, err := l.volumes.Take(ctx, b.volume.Name)
	if err != nil {
		return plugin.Result{}, b.failed("SetUp", "", err)
	}
	defer giveBack()
	dir := l.podDir(string(r.Pod.UID), false, b.volume.Name)
	result := plugin.Result{HostPath: dir, Plugin: localName, SELinuxRelabel: true}
	mounted, err := mounts.Mounted(dir)
	if err != nil {
		return plugin.Result{}, b.failed("SetUp", "", err)
	}
	if mounted {
		return result, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return plugin.Result{}, b.failed("SetUp", "", err)
	}
	if err := l.fill(ctx, r, b, path, disk); err != nil {
		// Should this fail it is done again when the pod goes.
		_ = l.unmount(ctx, b.volume.Name, dir)
		return plugin.Result{}, err
	}
	return result, nil
}

// fill mounts the volume at its place below the pod's directory, which exists. Its files get their group before, so
// that what is mounted is complete.
func (l *local) fill(ctx context.Context, r plugin.Request, b bound, path string, disk bool) error {
	giveBack, err := l.paths.Take(ctx, path)
	if err != nil {
		return b.failed("SetUp", "", err)
	}
	defer giveBack()
	source := path
	if disk {
		source = l.mountPoint(b.volume.Name)
		if err := l.mountDisk(b, path, source); err != nil {
			return b.failed("MountDevice", "", err)
		}
	}
	return l.bind(ctx, r, b, source, l.podDir(string(r.Pod.UID), false, b.volume.Name))
}

// bind makes what is mounted at source appear in the pod's directory, after its files have got their group.
func (l *local) bind(ctx context.Context, r plugin.Request, b bound, source, dir string) error {
	if err := l.group(ctx, r, b, source); err != nil {
		return b.failed("SetUp", "", err)
	}
	options := []string{"bind"}
	if b.readOnly {
		options = append(options, "ro")
	}
	if err := l.mounter.MountSensitiveWithoutSystemd(source, dir, "",
		mountOptions(b.volume, options...), nil); err != nil {
		return b.failed("SetUp", "", err)
	}
	return nil
}

// mountDisk mounts a disk for all pods, and formats it before if there is nothing on it.
func (l *local) mountDisk(b bound, disk, point string) error {
	if mounted, err := mounts.Mounted(point); err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(point, 0o750); err != nil {
		return err
	}
	fsType := b.fsType()
	var options []string
	if b.readOnly {
		options = []string{"ro"}
	}
	if b.label != "" {
		options = append(options, selinux.Option(b.label))
	}
	if err := l.mounter.FormatAndMount(disk, point, fsType, mountOptions(b.volume, options...)); err != nil {
		return fmt.Errorf("%s: failed to mount device %s at %s (fstype: %s), error %w",
			plugin.SourceName(b.volume.Spec.PersistentVolumeSource), disk, point, fsType, err)
	}
	return nil
}

// fsType is the type of the filesystem that a disk has, or gets where it has none.
func (b bound) fsType() string {
	t := ""
	switch source := b.volume.Spec; {
	case source.Local != nil && source.Local.FSType != nil:
		t = *source.Local.FSType
	case source.ISCSI != nil:
		t = source.ISCSI.FSType
	case source.FC != nil:
		t = source.FC.FSType
	}
	return cmp.Or(t, "ext4")
}

// plugin is the kubelet's name of what mounts the volume, with the driver's where it has one.
func (b bound) plugin() string {
	switch source := b.volume.Spec; {
	case source.CSI != nil:
		return "kubernetes.io/csi:" + source.CSI.Driver
	case source.Local != nil:
		return localName
	}
	return "kubernetes.io/" + plugin.SourceName(b.volume.Spec.PersistentVolumeSource)
}

// group gives the files to the pod's fsGroup. Those of a local volume that another pod has keep the one they have: so
// the kubelet does with local volumes, and with no others.
func (l *local) group(ctx context.Context, r plugin.Request, b bound, source string) error {
	gid := payload.FSGroup(r.Pod)
	if gid == nil {
		return nil
	}
	if b.volume.Spec.Local != nil {
		shared, err := l.sharedWithPods(source)
		if err != nil {
			return err
		}
		if shared {
			return warnOfOtherGroup(r, b, source, *gid)
		}
	}
	policy := r.Pod.Spec.SecurityContext.FSGroupChangePolicy
	if b.readOnly || (policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch && mounts.HasGroup(source, *gid)) {
		return nil
	}
	return plugin.GiveToGroup(ctx, r, b.plugin(), b.volume.Name, source)
}

// sharedWithPods reports whether some pod has mounted the same directory, by whatever volume.
func (l *local) sharedWithPods(source string) (bool, error) {
	refs, err := l.mounter.GetMountRefs(source)
	if err != nil {
		return false, err
	}
	// The kernel names mounts without links.
	pods, err := filepath.EvalSymlinks(filepath.Join(l.root, "pods"))
	if err != nil {
		return false, err
	}
	for _, ref := range refs {
		if strings.HasPrefix(ref, pods+"/") {
			return true, nil
		}
	}
	return false, nil
}

func warnOfOtherGroup(r plugin.Request, b bound, source string, gid int64) error {
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("failed to check fsGroup for %s (%w)", source, err)
	}
	if has := groupOf(info); has != gid {
		r.Calls.Warn("AlreadyMountedVolume", fmt.Sprintf(
			"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", gid,
			b.volume.Name, has))
	}
	return nil
}

func groupOf(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(stat.Gid)
	}
	return -1
}
