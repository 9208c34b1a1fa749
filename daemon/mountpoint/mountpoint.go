// Package mountpoint finds and unmounts what is mounted below the directories of pods, where containers and the node's own mounts are in
// the way.
//
// # Guarantees
//
//   - Unmounting ends a mount in the place that the caller named, never in another that is bound there (after Seclude) and never in one to
//     which a container has made a link meanwhile.
//   - What is no mount point any more is no error.
package mountpoint

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

// Seclude ends the exchange of mounts between the outermost of the points, which come from Below, and what they are binds of: to unmount
// something below a shared bind unmounts it in the place that was bound as well. A mount with nothing below isn't touched: it may hang.
func Seclude(points []string) error {
	var outermost []string
	done := map[string]bool{}
	var errs []error
	for _, p := range slices.Backward(points) {
		i := slices.IndexFunc(outermost, func(o string) bool { return isBelow(p, o) })
		if i < 0 {
			outermost = append(outermost, p)
			continue
		}
		if top := outermost[i]; !done[top] {
			done[top] = true
			errs = append(errs, makePrivate(top))
		}
	}
	return errors.Join(errs...)
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

// UnmountPoint unmounts what is at one of the points of Below, with flags such as unix.MNT_DETACH. A path that has links by now is an
// error.
func UnmountPoint(point string, flags int) error {
	parent, err := openPoint(filepath.Dir(point))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("unmount %s: open its parent: %w", point, err)
	}
	defer func() { _ = unix.Close(parent) }()
	return unmount(fmt.Sprintf("/proc/self/fd/%d/%s", parent, filepath.Base(point)), point, flags)
}

// Unmount unmounts what is mounted at path, if anything is.
func Unmount(path string) error { return unmount(path, path, 0) }

// unmount unmounts what is at path, which people know by name.
func unmount(path, name string, flags int) error {
	err := unix.Unmount(path, flags|unix.UMOUNT_NOFOLLOW)
	switch {
	case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("unmount %s: a process of this node still uses it: %w", name, err)
	}
	return fmt.Errorf("unmount %s: %w", name, err)
}
