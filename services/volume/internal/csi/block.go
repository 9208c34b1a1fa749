package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"kubelot.dev/services/volume/internal/device"
	"kubelot.dev/services/volume/internal/plugin"
)

// devices are volumes that pods get as block devices. Mount isn't called: pods name claims, not volumes.
type devices struct{ *Volumes }

// Unmount takes the device from a pod; link is the link in the pod's directory.
func (d devices) Unmount(ctx context.Context, link string) error {
	return d.unmount(ctx, d.at(target{block: true, name: filepath.Base(link)}, plugin.PodOf(link)))
}

// devicesDir is the kubelet's directory of block devices, or what is in it.
func (d disk) devicesDir(names ...string) string {
	return filepath.Join(append([]string{d.root, "plugins", pluginName, plugin.DevicesDir}, names...)...)
}

// atBlock is at for a volume that pods get as a device. The kubelet has one record of it, for all pods; that of a pod
// is in a directory of the pod that the kubelet makes for plug-ins.
func (d disk) atBlock(t target, uid string) target {
	pod := filepath.Join(d.root, "pods", uid)
	t.dir = filepath.Join(pod, "plugins", dirName, t.name)
	t.point = d.devicesDir("publish", t.name, uid)
	t.device = device.Map{
		Link: filepath.Join(pod, plugin.DevicesDir, dirName, t.name), Point: d.devicesDir(t.name, "dev", uid),
	}
	return t
}

// stagedBlock is the volume whose own record is in dir, if it is one that pods get as a device.
func (d disk) stagedBlock(dir string) (name string, ok bool) {
	name = filepath.Base(filepath.Dir(dir))
	return name, dir == d.devicesDir(name, "data")
}

// held are the files by which pods have the device, whatever the records say.
func (d disk) held(t target) ([]string, error) {
	var files []string
	for _, dir := range []string{d.devicesDir("publish", t.name), d.devicesDir(t.name, "dev")} {
		pods, err := names(dir)
		if err != nil {
			return nil, err
		}
		for _, uid := range pods {
			files = append(files, filepath.Join(dir, uid))
		}
	}
	return files, nil
}

// takeLost takes the device from pods that have no link to it any more: by that the volume is found when a pod goes,
// and it may go in between, with the pod's directory.
func (v *Volumes) takeLost(ctx context.Context, t target) error {
	files, err := v.held(t)
	for _, file := range files {
		uid := filepath.Base(file)
		of := v.at(t, uid)
		if exists(of.device.Link) {
			continue
		}
		if err := v.settle(ctx, task{target: of, podOnly: true}); err != nil {
			return err
		}
		// The record of the call was written below the pod's directory.
		err = errors.Join(err, of.device.Release(), device.RemoveEmpty(filepath.Join(v.root, "pods", uid)))
	}
	return err
}

// mapDevice gives the pod what the driver has published.
func (t task) mapDevice() error {
	if is, err := device.IsDisk(t.point); err != nil || !is {
		return errors.Join(fmt.Errorf("the driver has published no block device at %s", t.point), err)
	}
	err := t.device.Make(t.point, t.readOnly)
	if err == nil {
		t.request.Mapped(t.name, t.device.Point, t.device.Link)
	}
	return err
}

// exists reports whether there is something at the path, without a look behind a link or into a filesystem.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
