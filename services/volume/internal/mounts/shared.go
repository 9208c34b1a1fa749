package mounts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// EnsureShared makes dir, which it creates if it is missing, part of a shared mount: else nothing that a container
// mounts below it could reach the node or another container (VolumeMount.mountPropagation). On nodes whose init made
// the root mount shared, as systemd does, there is nothing to do; elsewhere dir becomes a mount of its own.
func EnsureShared(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("create %s: %w", dir, err)
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("find %s: %w", dir, err)
	}
	on, err := mountOf(resolved)
	if err != nil || strings.Contains(on.Optional, "shared:") {
		return err
	}
	if on.Mountpoint != resolved {
		if err := unix.Mount(resolved, resolved, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("make %s a mount of its own: %w", dir, err)
		}
	}
	if err := unix.Mount("", resolved, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mount %s: %w", dir, err)
	}
	return nil
}

// mountOf is the mount that a path, which has no symlinks, is on.
func mountOf(path string) (*mountinfo.Info, error) {
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return i.Mountpoint != path && !strings.HasPrefix(path, strings.TrimSuffix(i.Mountpoint, "/")+"/"), false
	})
	if err != nil {
		return nil, fmt.Errorf("read the mounts above %s: %w", path, err)
	}
	var on *mountinfo.Info
	for _, i := range infos {
		// Of several mounts at one place the last one covers the others.
		if on == nil || len(i.Mountpoint) >= len(on.Mountpoint) {
			on = i
		}
	}
	if on == nil {
		return nil, fmt.Errorf("the kernel lists no mount above %s", path)
	}
	return on, nil
}
