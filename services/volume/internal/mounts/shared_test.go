package mounts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mountpoint"
)

func TestEnsureShared(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base")
	tmpfs(t, base, Tmpfs{Mode: 0o755})
	// What the recursive bind covers has no path any more, so it goes with all of the base.
	t.Cleanup(func() { must(t, unix.Unmount(base, unix.MNT_DETACH)) })
	must(t, unix.Mount("", base, "", unix.MS_PRIVATE, ""))
	root := filepath.Join(base, "root")
	// A sibling whose name begins alike must not be taken for the mount that root is on.
	tmpfs(t, filepath.Join(base, "roo"), Tmpfs{Mode: 0o755})
	must(t, os.MkdirAll(filepath.Join(root, "volume"), 0o755))
	must(t, EnsureTmpfs(filepath.Join(root, "volume"), Tmpfs{Mode: 0o755}))
	write(t, filepath.Join(root, "volume", "file"))

	must(t, EnsureShared(root))
	on, err := mountOf(root)
	must(t, err)
	if on.Mountpoint != root || !strings.Contains(on.Optional, "shared:") {
		t.Errorf("%s is on %s with %q; want a shared mount of its own", root, on.Mountpoint, on.Optional)
	}
	if !exists(filepath.Join(root, "volume", "file")) {
		t.Error("what was mounted below is hidden")
	}

	must(t, EnsureShared(root))
	points, err := mountpoint.Below(root)
	must(t, err)
	if n := slices.Index(slices.Sorted(slices.Values(points)), filepath.Join(root, "volume")); n != 1 {
		t.Errorf("mounts at and below the root after a second call: %v; want the root once", points)
	}

	elsewhere := filepath.Join(base, "link")
	must(t, os.Symlink(root, elsewhere))
	must(t, EnsureShared(filepath.Join(elsewhere, "new", "dir")))
	if on, err := mountOf(filepath.Join(root, "new", "dir")); err != nil || on.Mountpoint != root {
		t.Errorf("a directory on a shared mount became a mount of its own: %+v, %v", on, err)
	}
}
