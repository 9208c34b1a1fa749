package down

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"kubelot.dev/cri/cgroupname"
)

const (
	// cgroupPatience is how long processes that were killed may take to leave their cgroup.
	cgroupPatience = 2 * time.Second
	cgroupLook     = 20 * time.Millisecond
)

// CgroupPaths are where the pods' cgroup tree may be below a cgroup mount, by the configured root. They are the paths
// of both drivers: podsync uses the runtime's driver, whichever is configured, and the runtime may have changed it.
func CgroupPaths(root string) ([]string, error) {
	name, err := cgroupname.ParseRoot(root)
	if err != nil {
		return nil, err
	}
	kubepods := name.Child(cgroupname.Kubepods)
	return []string{kubepods.Path(cgroupname.DriverCgroupfs), kubepods.Path(cgroupname.DriverSystemd)}, nil
}

// removeCgroups removes the trees from every cgroup hierarchy, with the processes that are left in them.
func removeCgroups(ctx context.Context, paths []string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	var errs []error
	for _, m := range mounts {
		for _, path := range paths {
			errs = append(errs, removeCgroup(ctx, filepath.Join(m.Mountpoint, path)))
		}
	}
	return errors.Join(errs...)
}

func removeCgroup(ctx context.Context, top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", top, err)
	}
	for i := len(dirs) - 1; i >= 0; i-- { // children come behind their parents
		if err := emptyAndRemove(ctx, dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

func emptyAndRemove(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, cgroupPatience)
	defer cancel()
	look := time.NewTicker(cgroupLook)
	defer look.Stop()
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		killAll(dir)
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup %s: it still has processes", dir)
		case <-look.C:
		}
	}
}

// killAll kills the processes in a cgroup; those that are gone already don't matter.
func killAll(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
