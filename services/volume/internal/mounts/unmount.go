package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Below lists the mount points at and below dir, deepest and latest first. Their paths have no symbolic links, which dir
// may have above its last element.
func Below(dir string) ([]string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the mounts below %s: %w", dir, err)
	}
	top := filepath.Join(parent, filepath.Base(dir))
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return i.Mountpoint != top && !isBelow(i.Mountpoint, top), false
	})
	if err != nil {
		return nil, fmt.Errorf("read the mounts below %s: %w", dir, err)
	}
	points := make([]string, 0, len(infos))
	for _, i := range slices.Backward(infos) {
		points = append(points, i.Mountpoint)
	}
	slices.SortStableFunc(points, func(a, b string) int {
		return strings.Count(b, "/") - strings.Count(a, "/")
	})
	return points, nil
}

func isBelow(path, dir string) bool { return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") }

// UnmountBelow unmounts everything at and below dir. What was mounted there keeps its content, and what the node has
// mounted in a place that is bound there stays mounted in that place.
func UnmountBelow(dir string) error {
	points, err := Below(dir)
	if err != nil {
		return err
	}
	if err := seclude(points); err != nil {
		return err
	}
	for _, p := range points {
		if err := unmountPoint(p); err != nil {
			return err
		}
	}
	return nil
}

// seclude ends the exchange of mounts between the outermost of the points, deepest first, and what they are binds of: to unmount
// something below a shared bind unmounts it in the place that was bound as well.
func seclude(points []string) error {
	var outermost []string
	done := map[string]bool{}
	for _, p := range slices.Backward(points) {
		i := slices.IndexFunc(outermost, func(o string) bool { return isBelow(p, o) })
		if i < 0 {
			outermost = append(outermost, p)
			continue
		}
		if top := outermost[i]; !done[top] {
			done[top] = true
			if err := makePrivate(top); err != nil {
				return err
			}
		}
	}
	return nil
}

func makePrivate(point string) error {
	fd, err := openPoint(point)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
		err = unix.Mount("", fmt.Sprintf("/proc/self/fd/%d", fd), "", unix.MS_PRIVATE|unix.MS_REC, "")
	}
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) { // it is no mount point any more
		return fmt.Errorf("part the mounts below %s from those of the node: %w", point, err)
	}
	return nil
}

// openPoint opens a path that has no symbolic links: one that has any by now was swapped by a container.
func openPoint(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
}

// unmountPoint unmounts what is at path, which has no symbolic links.
func unmountPoint(path string) error {
	parent, err := openPoint(filepath.Dir(path))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("unmount %s: open its parent: %w", path, err)
	}
	defer func() { _ = unix.Close(parent) }()
	return unmount(fmt.Sprintf("/proc/self/fd/%d/%s", parent, filepath.Base(path)), path)
}

// Unmount unmounts what is mounted at path, if anything is.
func Unmount(path string) error { return unmount(path, path) }

// unmount unmounts what is at path, which people know by name.
func unmount(path, name string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	switch {
	case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("unmount %s: a process of this node still uses it: %w", name, err)
	}
	return fmt.Errorf("unmount %s: %w", name, err)
}
