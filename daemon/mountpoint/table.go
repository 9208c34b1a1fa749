package mountpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// inTable is the path as the table of mounts has it, without symbolic links, which it may have above its last element.
// It is empty where the directory above doesn't exist. What is mounted at path isn't touched: it may not answer.
func inTable(path string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the mounts of %s: %w", path, err)
	}
	return filepath.Join(parent, filepath.Base(path)), nil
}

// Mounted reports whether something is mounted at path. It reads the table of mounts alone: a filesystem that doesn't
// answer holds nobody up. Path may have symbolic links above its last element.
func Mounted(path string) (bool, error) {
	infos, err := mountsAt(path, true)
	return len(infos) > 0, err
}

// Options are the options of the filesystem that is mounted at path, as the kernel shows them, separated by commas;
// empty where nothing is mounted. It reads the table of mounts alone.
func Options(path string) (string, error) {
	infos, err := mountsAt(path, false)
	if err != nil || len(infos) == 0 {
		return "", err
	}
	return infos[len(infos)-1].VFSOptions, nil // the last of several covers the others
}

// mountsAt is what is mounted at path, or the first of it.
func mountsAt(path string, first bool) ([]*mountinfo.Info, error) {
	point, err := inTable(path)
	if point == "" {
		return nil, err
	}
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return i.Mountpoint != point, first && i.Mountpoint == point
	})
	if err != nil {
		return nil, fmt.Errorf("read the mounts at %s: %w", path, err)
	}
	return infos, nil
}

// Shared lists the mount points at and below dir that show what is mounted at path, or a part of it. It reads the table
// of mounts alone. Path and dir may have symbolic links above their last elements.
func Shared(path, dir string) ([]string, error) {
	point, err := inTable(path)
	if point == "" {
		return nil, err
	}
	top, err := inTable(dir)
	if top == "" {
		return nil, err
	}
	infos, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read the mounts of %s: %w", path, err)
	}
	var on *mountinfo.Info
	for _, i := range infos {
		if i.Mountpoint == point {
			on = i // The last of several covers the others.
		}
	}
	if on == nil {
		return nil, nil
	}
	var points []string
	for _, i := range infos {
		same := i.Major == on.Major && i.Minor == on.Minor && (i.Root == on.Root || isBelow(i.Root, on.Root))
		if same && i.Mountpoint != point && (i.Mountpoint == top || strings.HasPrefix(i.Mountpoint, top+"/")) {
			points = append(points, i.Mountpoint)
		}
	}
	return points, nil
}
