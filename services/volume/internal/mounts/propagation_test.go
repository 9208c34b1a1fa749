package mounts

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mountpoint"
)

// sharedHost is a directory of the node whose mounts are seen in every bind of it, as below systemd.
func sharedHost(t *testing.T) string {
	t.Helper()
	host := filepath.Join(t.TempDir(), "host")
	tmpfs(t, host, Tmpfs{Mode: 0o755})
	must(t, unix.Mount("", host, "", unix.MS_SHARED, ""))
	return host
}

func bind(t *testing.T, source, target string, flags uintptr) {
	t.Helper()
	must(t, os.MkdirAll(target, 0o755))
	must(t, unix.Mount(source, target, "", unix.MS_BIND|flags, ""))
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

// What the node has mounted below a directory shows in its binds, too. It goes from there only.
func TestUnmountLeavesTheNodesMountsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		place  func(t *testing.T, host, dir string)
		remove func(dir string) error
	}{
		"mounted after the bind": {func(t *testing.T, host, dir string) {
			bind(t, host, filepath.Join(dir, "target"), 0)
			tmpfs(t, filepath.Join(host, "inner"), Tmpfs{Mode: 0o755})
		}, UnmountBelow},
		"bound recursively by a container": {func(t *testing.T, host, dir string) {
			tmpfs(t, filepath.Join(host, "inner"), Tmpfs{Mode: 0o755})
			bind(t, host, filepath.Join(dir, "made", "target"), unix.MS_REC)
		}, func(dir string) error { return Release(context.Background(), dir) }},
		"the directory is the bind": {func(t *testing.T, host, dir string) {
			bind(t, host, dir, 0)
			tmpfs(t, filepath.Join(host, "inner"), Tmpfs{Mode: 0o755})
		}, UnmountBelow},
	} {
		t.Run(name, func(t *testing.T) {
			host, dir := sharedHost(t), filepath.Join(t.TempDir(), "volume")
			c.place(t, host, dir)
			write(t, filepath.Join(host, "inner", "precious"))
			must(t, c.remove(dir))
			if points, err := mountpoint.Below(dir); err != nil || len(points) > 0 {
				t.Errorf("still mounted: %v, %v", points, err)
			}
			if mounted, err := Mounted(filepath.Join(host, "inner")); !mounted || err != nil {
				t.Errorf("the node's own mount is gone (%v)", err)
			}
			if !exists(filepath.Join(host, "inner", "precious")) {
				t.Error("what is in the node's own mount is gone")
			}
		})
	}
}

// The root directory of a node may be reached by a link.
func TestUnmountBehindALink(t *testing.T) {
	base := t.TempDir()
	tmpfs(t, filepath.Join(base, "disk", "volume", "inner"), Tmpfs{Mode: 0o755})
	must(t, os.Symlink(filepath.Join(base, "disk"), filepath.Join(base, "root")))
	must(t, Release(context.Background(), filepath.Join(base, "root", "volume")))
	if points, err := mountpoint.Below(base); err != nil || len(points) > 0 ||
		exists(filepath.Join(base, "disk", "volume")) {
		t.Errorf("still mounted: %v, %v", points, err)
	}
	if points, err := mountpoint.Below(filepath.Join(base, "none", "at", "all")); err != nil || len(points) > 0 {
		t.Errorf("mounts below what isn't there: %v, %v", points, err)
	}
}
