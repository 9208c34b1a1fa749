package persistent

import (
	"errors"
	"path/filepath"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/selinux"
)

// labels may be nil.
func (d *remote) labels() *selinux.Book {
	if d.cluster == nil {
		return nil
	}
	return d.cluster.Labels()
}

// label is the SELinux label that the disk is to be mounted with for the pod; empty for none.
func (d *remote) label(r plugin.Request, b bound, disk netDisk) (string, error) {
	label, err := d.labels().Label(r.Pod, r.Volume.Name, selinux.Volume{
		ID: disk.attached, Name: b.volume.Name, Plugin: d.kind().Name, Modes: b.volume.Spec.AccessModes,
	})
	if err != nil {
		return "", plugin.Unprocessed(r.Volume.Name, err)
	}
	return label, nil
}

// relabels reports whether the runtime has to label the files of what is mounted at path.
func (d *remote) relabels(path string) bool {
	if !d.labels().On() {
		return true
	}
	label, err := d.labelAt(path)
	return err != nil || label == ""
}

// mountedAs reports whether the disk is mounted with the label that the pod wants. If it has another one it is
// unmounted, unless a pod has it.
func (d *remote) mountedAs(b bound, disk netDisk) (bool, error) {
	mounted, err := mountpoint.Mounted(disk.mounted)
	if err != nil || !mounted || !d.labels().On() {
		return mounted, err
	}
	label, err := d.labelAt(disk.mounted)
	if err != nil || label == b.label {
		return true, err
	}
	users, err := mountpoint.Shared(disk.mounted, filepath.Join(d.local.root, "pods"))
	if err != nil {
		return true, err
	}
	if len(users) > 0 {
		failure := b.failed("MountDevice", "", errors.New(selinux.Elsewhere(disk.attached)))
		failure.OnItsWay = true
		return true, failure
	}
	return false, mounts.UnmountBelow(disk.mounted)
}
