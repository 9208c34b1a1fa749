package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/device"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

// disk is the state of all volumes: their records and directories, and the machine's table of mounts. No filesystem of
// a volume is touched: it may not answer.
type disk struct {
	// root is the kubelet's root directory, boot the boot of the machine.
	root, boot string
	// used follows the records; nil where nobody asks.
	used *inUse
}

// has reports whether the pod has the volume by what is on disk.
func (d disk) has(t target) bool {
	r, err := readRecord(t.dir)
	if err != nil || !r.isOf(t) {
		return false
	}
	if s, err := d.step(r, t.point); err != nil || s != stepPublished {
		return false
	}
	if t.block {
		return exists(t.point)
	}
	entries, err := os.ReadDir(t.dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == mountName })
}

// step is how far the volume is that a driver mounts at point. What the record says of a mount that isn't there any
// more is worth nothing: somebody has unmounted it, or the node is a container that was started again.
func (d disk) step(r record, point string) (step, error) {
	s := r.step(d.boot)
	if r[keyMounted] == "" || (s != stepStaged && s != stepMounted && s != stepPublished) {
		return s, nil
	}
	mounted, err := mountpoint.Mounted(point)
	if err == nil && !mounted {
		s = stepUncertain
	}
	return s, err
}

// staged are the directories of volumes that are or may be staged.
func (d disk) staged() ([]string, error) {
	top := filepath.Join(d.root, "plugins", pluginName)
	drivers, err := names(top)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, driver := range drivers {
		volumes, err := names(filepath.Join(top, driver))
		if err != nil {
			return nil, err
		}
		for _, volume := range volumes {
			dir := filepath.Join(top, driver, volume)
			if exists(filepath.Join(dir, recordName)) {
				dirs = append(dirs, dir)
			}
		}
	}
	blocks, err := names(d.devicesDir())
	for _, volume := range blocks {
		if dir := d.devicesDir(volume, "data"); exists(filepath.Join(dir, recordName)) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, err
}

// ofPods are the directories of all pods' volumes.
func (d disk) ofPods() ([]string, error) {
	pods, err := names(filepath.Join(d.root, "pods"))
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, pod := range pods {
		for _, kind := range []string{plugin.VolumesDir, "plugins"} {
			top := filepath.Join(d.root, "pods", pod, kind, dirName)
			volumes, err := names(top)
			if err != nil {
				return nil, err
			}
			for _, name := range volumes {
				dirs = append(dirs, filepath.Join(top, name))
			}
		}
	}
	return dirs, nil
}

// names are the entries of a directory; none of what isn't one.
func names(dir string) ([]string, error) {
	list, err := mounts.Names(dir)
	if errors.Is(err, unix.ENOTDIR) {
		err = nil
	}
	return list, err
}

// stageDir is the volume's own directory, with its record and the staging path.
func (d disk) stageDir(t target) string {
	if t.block {
		return d.devicesDir(t.name, "data")
	}
	return filepath.Join(d.root, "plugins", pluginName, t.driver, hexSum(t.handle))
}

// staging is where the driver stages the volume.
func (d disk) staging(t target) string {
	if t.block {
		return d.devicesDir("staging", t.name)
	}
	return filepath.Join(d.stageDir(t), "globalmount")
}

// at says where the volume is for the pod.
func (d disk) at(t target, uid string) target {
	if t.block {
		return d.atBlock(t, uid)
	}
	t.dir = filepath.Join(d.root, "pods", uid, plugin.VolumesDir, dirName, t.name)
	t.point = filepath.Join(t.dir, mountName)
	return t
}

// place is where a volume is, for all pods or for one: the directory of its record, what the driver makes, and the
// directories that go when nothing is left in them.
type place struct {
	dir, point string
	parents    []string
}

func (d disk) podPlace(t target) place {
	p := place{dir: t.dir, point: t.point}
	if t.block {
		ofKind := filepath.Dir(t.dir)
		p.parents = []string{ofKind, filepath.Dir(ofKind), filepath.Dir(t.point)}
	}
	return p
}

func (d disk) stagePlace(t target) place {
	p := place{dir: d.stageDir(t), point: d.staging(t)}
	if t.block {
		p.parents = []string{d.devicesDir(t.name, "dev"), d.devicesDir(t.name)}
	}
	return p
}

// note writes a record, and makes its directory before.
func (d disk) note(dir string, r record, s step) error {
	if old, err := readRecord(dir); err == nil && s == stepPublished && old.step(d.boot) == s {
		return nil // it is published again, which needs no room on the disk
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	err := r.with(dir).write(dir, s, d.boot)
	if err == nil {
		d.used.noted(dir, r)
	}
	return err
}

// clear removes the mount point, the record and their directory, of which nothing is mounted any more.
func (d disk) clear(p place) error {
	if err := removeEmpty(p.point); err != nil {
		return err
	}
	if err := (record{}).write(p.dir, stepNone, d.boot); err != nil {
		return err
	}
	d.used.noted(p.dir, nil)
	err := removeEmpty(p.dir)
	for _, dir := range p.parents {
		err = errors.Join(err, device.RemoveEmpty(dir))
	}
	return err
}

// removeEmpty removes an empty directory or file on which nothing is mounted: never what is in it.
func removeEmpty(path string) error {
	mounted, err := mountpoint.Mounted(path)
	if err == nil && mounted {
		err = fmt.Errorf("%s is still mounted, though the driver says that it isn't", path)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what is left of a volume, never with its content: %w", err)
	}
	return nil
}

// uses are what the other pods' directories say of a volume.
type uses struct {
	// others is how many have a record of it, and holders how many of these have it or may have it.
	others, holders int
	// doubt is where something is mounted of which no record can be read: it may be the volume.
	doubt string
}

func (d disk) uses(t target) (uses, error) {
	var u uses
	dirs, err := d.ofPods()
	for _, dir := range dirs {
		if dir == t.dir {
			continue
		}
		if err := d.count(t, dir, &u); err != nil {
			return u, err
		}
	}
	return u, err
}

// count adds what the directory of another pod's volume says.
func (d disk) count(t target, dir string, u *uses) error {
	r, err := readRecord(dir)
	switch {
	case r == nil && (err == nil || errors.Is(err, errDamaged)):
		mounted, err := mountpoint.Mounted(filepath.Join(dir, mountName))
		if mounted {
			u.doubt = fmt.Sprintf("%s, whose %s is missing or damaged", dir, recordName)
		}
		return err
	case err != nil:
		return err
	case r.isOf(t):
		u.others++
		if r.step(d.boot) != stepWanted {
			u.holders++
		}
	}
	return nil
}

// bound is where a volume that no record has is in use nevertheless; empty for nowhere.
func (d disk) bound(t target, u uses) (string, error) {
	if t.block {
		files, err := d.held(t)
		return strings.Join(files, ", "), err
	}
	points, err := mountpoint.Shared(d.staging(t), filepath.Join(d.root, "pods"))
	if err != nil || len(points) > 0 {
		return strings.Join(points, ", "), err
	}
	staged, err := mountpoint.Mounted(d.staging(t))
	if staged {
		return "", err // of what is mounted there, the table of mounts has just told that nobody has it
	}
	return u.doubt, err
}
