package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"kubelot.dev/daemon/mountpoint"
)

// UnmountBelow unmounts everything at and below dir. What was mounted there keeps its content, and what the node has
// mounted in a place that is bound there stays mounted in that place.
func UnmountBelow(dir string) error {
	points, err := mountpoint.Below(dir)
	if err != nil {
		return err
	}
	if err := mountpoint.Seclude(points); err != nil {
		return err
	}
	for _, p := range points {
		if err := mountpoint.UnmountPoint(p, 0); err != nil {
			return err
		}
	}
	return nil
}

// UnmountAndRemove unmounts what is at path and removes the empty file or directory that it was mounted on. What isn't
// empty is somebody's data.
func UnmountAndRemove(path string) error {
	if err := UnmountBelow(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the mount point of a volume, never with its content: %w", err)
	}
	return nil
}
