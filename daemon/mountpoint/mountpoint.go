// Package mountpoint finds and unmounts what is mounted below the directories of pods. Containers can change these
// directories at any time, and mounts of the node may be bound there.
//
// # Guarantees
//
//   - Unmounting ends a mount only in the place that the caller named. After Seclude it never ends one in another place
//     that is bound there, and it never follows a link that a container has made.
//   - A place that is no longer a mount point is no error.
package mountpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Below lists the mount points at and below dir, deepest and latest first. Their paths have no symbolic links, which
// dir may have above its last element.
func Below(dir string) ([]string, error) {
	top, err := inTable(dir)
	if top == "" {
		return nil, err
	}
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

// OnItself reports whether what is mounted at dir is dir itself, as after mount --bind dir dir. The path must have no
// symbolic links.
func OnItself(dir string) (bool, error) {
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return i.Mountpoint != dir && !isBelow(dir, i.Mountpoint), false
	})
	if err != nil {
		return false, fmt.Errorf("read the mounts above %s: %w", dir, err)
	}
	byID := map[int]*mountinfo.Info{}
	var on *mountinfo.Info
	for _, i := range infos {
		byID[i.ID] = i
		if i.Mountpoint == dir {
			on = i // The last of several covers the others.
		}
	}
	if on == nil || byID[on.Parent] == nil {
		return false, nil
	}
	under := byID[on.Parent]
	path := filepath.Join(under.Root, strings.TrimPrefix(dir, under.Mountpoint))
	return on.Major == under.Major && on.Minor == under.Minor && on.Root == path, nil
}

func isBelow(path, dir string) bool { return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") }

// Seclude makes the outermost of the points private. The points come from Below. Without it, unmounting something below
// a shared bind mount would also unmount it in the place that was bound. A mount with nothing below it isn't touched,
// because it may hang.
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
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
}

// UnmountPoint unmounts what is at one of the points of Below, with flags such as unix.MNT_DETACH. A path that has
// links by now is an error.
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
