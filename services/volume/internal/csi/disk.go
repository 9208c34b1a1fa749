package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

// disk is the state of all volumes: their records and directories.
type disk struct {
	// root is the kubelet's root directory, boot the boot of the machine.
	root, boot string
}

// has reports whether the pod has the volume by what is on disk.
func (d disk) has(t target) bool {
	r, err := readRecord(t.dir)
	if err != nil || r.step(d.boot) != stepPublished {
		return false
	}
	// The mount point itself isn't looked at: its filesystem may not answer.
	entries, err := os.ReadDir(t.dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "mount" })
}

// staged are the directories of volumes that are or may be staged.
func (d disk) staged() []string {
	files, err := filepath.Glob(filepath.Join(d.root, "plugins", pluginName, "*", "*", recordName))
	if err != nil {
		return nil // only a bad pattern is an error
	}
	for i, file := range files {
		files[i] = filepath.Dir(file)
	}
	return files
}

// stageDir is the volume's own directory, with its record and the staging path.
func (d disk) stageDir(t target) string {
	return filepath.Join(d.root, "plugins", pluginName, t.driver, hexSum(t.handle))
}

// note writes a record, and makes its directory before.
func (d disk) note(dir string, r record, s step) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return r.write(dir, s, d.boot)
}

// clear removes the mount point, the record and their directory, of which nothing is mounted any more.
func (d disk) clear(dir, point string) error {
	if err := removeEmpty(filepath.Join(dir, point)); err != nil {
		return err
	}
	if err := (record{}).write(dir, stepNone, d.boot); err != nil {
		return err
	}
	return removeEmpty(dir)
}

// removeEmpty removes an empty directory or file on which nothing is mounted: never what is in it.
func removeEmpty(path string) error {
	mounted, err := mounts.Mounted(path)
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

// others counts the other pods that have a record of the volume.
func (d disk) others(t target) (int, error) {
	dirs, err := filepath.Glob(filepath.Join(d.root, "pods", "*", plugin.VolumesDir, dirName, "*"))
	if err != nil {
		return 0, err
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool {
		if dir == t.dir {
			return true
		}
		r, err := readRecord(dir)
		// A record that can't be read may be the volume's.
		return err == nil && (r == nil || r[keyDriver] != t.driver || r[keyHandle] != t.handle)
	})
	return len(dirs), nil
}
