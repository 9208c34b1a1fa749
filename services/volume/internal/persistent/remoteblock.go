package persistent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kubelot.dev/services/volume/internal/device"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

// remoteDevices are disks of the network that pods get as devices. Mount isn't called: pods name claims, not volumes.
type remoteDevices struct{ *remote }

// Leftovers is the other kind's.
func (remoteDevices) Leftovers(context.Context) error { return nil }

// Unmount takes the device from a pod, and detaches the disk when no other pod has it. The link goes last: by it the
// volume is found again.
func (d remoteDevices) Unmount(ctx context.Context, link string) error {
	volume, uid := filepath.Base(link), plugin.PodOf(link)
	all, err := d.globals(true)
	if err != nil {
		return err
	}
	var errs []error
	for _, global := range all {
		disk, err := d.read(global)
		_, there := os.Lstat(filepath.Join(global, uid))
		if err != nil || disk.volume != volume && (disk.volume != "" || there != nil) {
			continue
		}
		errs = append(errs, d.locked(ctx, global, func(ctx context.Context, global string) error {
			if err := (device.Map{Link: link, Point: filepath.Join(global, uid)}).Release(); err != nil {
				return err
			}
			return d.releaseDevice(ctx, global)
		}))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	d.use(link, "")
	return device.Map{Link: link}.RemoveLink()
}

// mapDevice makes a link to the disk for the runtime, and holds the disk.
func (d *remote) mapDevice(ctx context.Context, r plugin.Request, b bound) (plugin.Result, error) {
	uid := string(r.Pod.UID)
	link := d.place(uid, true, b.volume.Name)
	// It leads nowhere until the disk is attached.
	if _, err := os.Readlink(link); errors.Is(err, fs.ErrNotExist) {
		if err := (device.Map{Link: link}).MakeLink(os.DevNull + "/" + b.volume.Name); err != nil {
			return plugin.Result{}, b.failed("", "MapPodDevice", err)
		}
	}
	disk, err := d.mayAttach(b, link)
	if err != nil {
		return plugin.Result{}, err
	}
	global := disk.mapped
	giveBack, err := d.locks.Take(ctx, global)
	if err != nil {
		return plugin.Result{}, b.failed("", "MapBlockVolume", err)
	}
	defer giveBack()
	d.use(global, disk.attached)
	m := device.Map{Link: link, Point: filepath.Join(global, uid)}
	path, err := d.attach(ctx, r, b.volume, global)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		err = m.Make(path, b.readOnly)
	}
	if err != nil {
		// Should this fail it is done again when the pod goes, or at the next start.
		_ = errors.Join(m.Release(), d.releaseDevice(context.WithoutCancel(ctx), global))
		return plugin.Result{}, b.failed("", "MapBlockVolume", err)
	}
	r.Mapped(b.volume.Name, m.Point, m.Link)
	return plugin.Result{Device: link, Plugin: d.kind().Name}, nil
}

// hasDevice reports whether the pod has the disk as a device.
func (d *remote) hasDevice(uid string, known plugin.Result) bool {
	if known.Device == "" || known.Device != d.place(uid, true, known.PersistentVolume) {
		return false
	}
	all, err := d.globals(true)
	if err != nil {
		return false
	}
	for _, global := range all {
		disk, err := d.read(global)
		if err != nil || disk.volume != known.PersistentVolume && disk.volume != "" {
			continue
		}
		if made, err := (device.Map{Link: known.Device, Point: filepath.Join(global, uid)}).Made(); made && err == nil {
			return true
		}
	}
	return false
}

// releaseDevice detaches a disk that no pod has as a device. Pods without a link to it have none. It is called with the
// lock.
func (d *remote) releaseDevice(ctx context.Context, global string) error {
	uids, err := mounts.Names(global)
	if err != nil {
		return err
	}
	disk, err := d.read(global)
	if err != nil {
		return err
	}
	for _, uid := range uids {
		if strings.HasSuffix(uid, ".json") {
			continue // the record
		}
		link := d.place(uid, true, disk.volume)
		if _, err := os.Readlink(link); err == nil || disk.volume == "" {
			return nil
		}
		if err := (device.Map{Link: link, Point: filepath.Join(global, uid)}).Release(); err != nil {
			return err
		}
	}
	return d.takeAway(ctx, "unmap_device", global)
}
