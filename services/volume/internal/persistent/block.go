package persistent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

// devices are local volumes that pods get as block devices.
type devices struct{ local *local }

// Mount isn't called: pods name claims, not volumes.
func (devices) Mount(context.Context, plugin.Request) (plugin.Result, error) {
	return plugin.Result{}, plugin.ErrUnsupported
}

// Unmount takes the device from a pod; link is the link in the pod's directory.
func (d devices) Unmount(ctx context.Context, link string) error {
	volume, uid := filepath.Base(link), filepath.Base(filepath.Join(link, "../../.."))
	giveBack, err := d.local.volumes.Take(ctx, volume)
	if err != nil {
		return err
	}
	defer giveBack()
	return d.local.unmap(volume, uid)
}

// unmap is called with the volume's lock.
func (l *local) unmap(volume, uid string) error {
	point := filepath.Join(l.deviceMap(volume), uid)
	if err := detachLoop(point); err != nil {
		return err
	}
	if err := unmountAndRemove(point); err != nil {
		return err
	}
	if err := os.Remove(l.deviceMap(volume)); err != nil && !errors.Is(err, fs.ErrNotExist) &&
		!errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	if err := os.Remove(l.podDir(uid, true, volume)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// mapped reports whether the pod has the device.
func (l *local) mapped(uid, volume string) (bool, error) {
	if _, err := os.Readlink(l.podDir(uid, true, volume)); err != nil {
		return false, nil //nolint:nilerr // then it is made
	}
	return mounts.Mounted(filepath.Join(l.deviceMap(volume), uid))
}

// mapDevice makes a link to the disk for the runtime, and holds the disk: should it go away, no other one may come by
// its number while the container has the right to use that.
func (l *local) mapDevice(ctx context.Context, r plugin.Request, b bound) (plugin.Result, error) {
	path, err := b.path()
	if err != nil {
		return plugin.Result{}, err
	}
	disk, err := filepath.EvalSymlinks(path)
	if err != nil {
		return plugin.Result{}, b.failed("", "EvalHostSymlinks", err)
	}
	is, err := isDisk(disk)
	if err == nil && !is {
		err = fmt.Errorf("%s is a directory, and the volume's volumeMode is Block: it must be a block device", disk)
	}
	if err != nil {
		return plugin.Result{}, b.failed("", "MapBlockVolume", err)
	}
	giveBack, err := l.volumes.Take(ctx, b.volume.Name)
	if err != nil {
		return plugin.Result{}, b.failed("", "MapBlockVolume", err)
	}
	defer giveBack()
	uid := string(r.Pod.UID)
	if err := l.link(b.volume.Name, uid, disk, b.readOnly); err != nil {
		// Should this fail it is done again when the pod goes.
		_ = l.unmap(b.volume.Name, uid)
		return plugin.Result{}, b.failed("", "MapBlockVolume", err)
	}
	return plugin.Result{Device: l.podDir(uid, true, b.volume.Name), Plugin: localName}, nil
}

// link makes what Unmount removes. All of it may be there already.
func (l *local) link(volume, uid, disk string, readOnly bool) error {
	link, point := l.podDir(uid, true, volume), filepath.Join(l.deviceMap(volume), uid)
	if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
		return err
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(disk, link); err != nil {
		return err
	}
	mounted, err := mounts.Mounted(point)
	if err == nil && !mounted {
		err = l.bind(disk, point)
	}
	if err != nil {
		return err
	}
	return attachLoop(point, readOnly)
}

// bind makes the disk appear at point, whatever its name means later.
func (l *local) bind(disk, point string) error {
	if err := os.MkdirAll(filepath.Dir(point), 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(point, os.O_CREATE|os.O_WRONLY, 0o750)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := l.mounter.MountSensitiveWithoutSystemd(disk, point, "", []string{"bind"}, nil); err != nil {
		return fmt.Errorf("bind the device %s: %w", disk, err)
	}
	return nil
}
