package scsi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kubelot.dev/daemon/atomicfile"
	"kubelot.dev/services/volume/internal/plugin"
)

// Beside is the record that is beside a disk's global directory: what is mounted there hides one within. A kubelet
// doesn't take it for a disk.
func Beside(global string) string {
	return filepath.Join(filepath.Dir(global), "."+filepath.Base(global)+".json")
}

// Record makes the global directory, with the record beside it.
func Record(global string, disk any) error {
	data, err := json.Marshal(disk)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(global, 0o750); err != nil {
		return err
	}
	return atomicfile.WriteDurably(Beside(global), data, 0o600)
}

// Forget removes the global directory and its record, and before them the named files in it. Anything else that is in
// it is somebody's data.
func Forget(global string, within ...string) error {
	var paths []string
	for _, name := range within {
		paths = append(paths, filepath.Join(global, name))
	}
	for _, path := range append(paths, global, Beside(global)) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the global directory of a disk, never with its content: %w", err)
		}
	}
	return nil
}

// Top is the directory of all global ones of a kind of volumes, below the kubelet's root directory: of the disks that
// are mounted, or of those that pods have as devices.
func Top(root, kind string, block bool) string {
	dir := filepath.Join(root, "plugins", kind)
	if block {
		dir = filepath.Join(dir, plugin.DevicesDir)
	}
	return dir
}
