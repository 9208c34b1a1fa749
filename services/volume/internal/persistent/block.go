package persistent

import (
	"context"
	"fmt"
	"path/filepath"

	"kubelot.dev/services/volume/internal/device"
	"kubelot.dev/services/volume/internal/plugin"
)

// devices are local volumes that pods get as block devices.
type devices struct{ filesystems }

// Unmount takes the device from a pod; link is the link in the pod's directory.
func (d devices) Unmount(ctx context.Context, link string) error {
	volume, uid := filepath.Base(link), plugin.PodOf(link)
	giveBack, err := d.local.volumes.Take(ctx, volume)
	if err != nil {
		return err
	}
	defer giveBack()
	return d.local.unmap(volume, uid)
}

// unmap is called with the volume's lock.
func (l *local) unmap(volume, uid string) error {
	m := l.device(volume, uid)
	if err := m.Release(); err != nil {
		return err
	}
	return m.RemoveLink()
}

// mapDevice makes a link to the disk for the runtime, and holds the disk.
func (l *local) mapDevice(ctx context.Context, r plugin.Request, b bound) (plugin.Result, error) {
	path, err := b.path()
	if err != nil {
		return plugin.Result{}, err
	}
	disk, err := filepath.EvalSymlinks(path)
	if err != nil {
		return plugin.Result{}, b.failed("", "EvalHostSymlinks", err)
	}
	is, err := device.IsDisk(disk)
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
	m := l.device(b.volume.Name, string(r.Pod.UID))
	if err := m.Make(disk, b.readOnly); err != nil {
		// Should this fail it is done again when the pod goes.
		_ = l.unmap(b.volume.Name, string(r.Pod.UID))
		return plugin.Result{}, b.failed("", "MapBlockVolume", err)
	}
	r.Mapped(b.volume.Name, m.Point, m.Link)
	return plugin.Result{Device: m.Link, Plugin: localName}, nil
}
