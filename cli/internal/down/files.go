package down

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/daemon/tree"
)

// mountsBelow are the mount points below dir, deepest first.
func mountsBelow(dir string) ([]string, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find mounts below %s: %w", dir, err)
	}
	points, err := mountpoint.Below(resolved)
	return slices.DeleteFunc(points, func(point string) bool { return point == resolved }), err
}

// unmountBelow unmounts everything below dir; what is busy or hangs is detached.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	errs := []error{mountpoint.Seclude(points)}
	for _, point := range points {
		if mountpoint.UnmountPoint(point, 0) != nil {
			errs = append(errs, mountpoint.UnmountPoint(point, unix.MNT_DETACH))
		}
	}
	return errors.Join(errs...)
}

// freeRoot ends the mount of the root directory on itself, which the volume daemon makes where the root directory isn't
// part of a shared mount. A mount of another kind, such as a disk of its own, stays. So does one with mounts below it
// that aren't the pods'.
func freeRoot(root string, out io.Writer) error {
	resolved, err := filepath.EvalSymlinks(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the mount of %s: %w", root, err)
	}
	own, err := mountpoint.OnItself(resolved)
	if err != nil || !own {
		return err
	}
	points, err := mountsBelow(resolved)
	if err != nil {
		return err
	}
	if len(points) > 0 {
		fmt.Fprintf(out, "%s stays a mount, because %s is mounted below it\n", root, points[0])
		return nil
	}
	// A process whose working directory is below it keeps that, and the directory stays where it is.
	return mountpoint.UnmountPoint(resolved, unix.MNT_DETACH)
}

// removePodDirs deletes the pods' directories in which nothing is mounted any more.
func removePodDirs(ctx context.Context, dir string, out io.Writer) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pod directories: %w", err)
	}
	var errs []error
	removed := 0
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		err := removeTree(ctx, path)
		errs = append(errs, err)
		if err == nil {
			removed++
		}
	}
	if removed > 0 {
		fmt.Fprintf(out, "removed %d pod directories below %s\n", removed, dir)
	}
	return errors.Join(errs...)
}

// removeTree deletes a directory unless something is mounted in it. An empty path is nothing.
func removeTree(ctx context.Context, path string) error {
	if path == "" {
		return nil
	}
	err := tree.Remove(ctx, path)
	if errors.Is(err, tree.ErrMounted) {
		return fmt.Errorf("%s is kept, since %w: unmount it and run kubelot down again", path, err)
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// removeLogs deletes the log directories of the pods with these UIDs, and the links that then lead nowhere.
func removeLogs(ctx context.Context, podLogs, containerLogs string, uids map[string]bool) error {
	entries, err := os.ReadDir(podLogs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("pod logs: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		name := entry.Name()
		if uids[name[strings.LastIndexByte(name, '_')+1:]] {
			errs = append(errs, removeTree(ctx, filepath.Join(podLogs, name)))
		}
	}
	return errors.Join(append(errs, removeDeadLinks(containerLogs, podLogs))...)
}

// removeDeadLinks deletes the links in dir that point below target to what is gone.
func removeDeadLinks(dir, target string) error {
	if dir == "" {
		return nil
	}
	links, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return fmt.Errorf("container logs: %w", err)
	}
	var errs []error
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(to, strings.TrimRight(target, "/")+"/") {
			continue
		}
		if _, err := os.Stat(to); errors.Is(err, os.ErrNotExist) {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}
