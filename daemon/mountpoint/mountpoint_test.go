package mountpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mounttest"
)

func TestMain(m *testing.M) {
	mounttest.Enter()
	os.Exit(m.Run())
}

// tmpfs mounts one at dir, which it makes.
func tmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func TestBelowIsDeepestFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	for _, p := range []string{dir, filepath.Join(dir, "b"), filepath.Join(dir, "b", "c"), dir + "-not-this"} {
		tmpfs(t, p)
	}
	points, err := Below(dir)
	want := []string{filepath.Join(dir, "b", "c"), filepath.Join(dir, "b"), dir}
	if err != nil || !slices.Equal(points, want) {
		t.Errorf("got %v, %v; want %v", points, err, want)
	}
	if points, err := Below(filepath.Join(dir, "none", "at", "all")); err != nil || len(points) > 0 {
		t.Errorf("mounts below what isn't there: %v, %v", points, err)
	}
}

// A swapped parent leads neither unmounting nor the parting of mounts elsewhere.
func TestNoLinkIsFollowed(t *testing.T) {
	base := t.TempDir()
	mounted := filepath.Join(base, "node", "mnt")
	tmpfs(t, mounted)
	if err := os.Symlink(filepath.Join(base, "node"), filepath.Join(base, "swapped")); err != nil {
		t.Fatal(err)
	}
	behind := filepath.Join(base, "swapped", "mnt")
	for _, flags := range []int{0, unix.MNT_DETACH} {
		if err := UnmountPoint(behind, flags); !errors.Is(err, unix.ELOOP) {
			t.Errorf("error %v, want that there is a link", err)
		}
	}
	if err := Seclude([]string{filepath.Join(behind, "inner"), behind}); !errors.Is(err, unix.ELOOP) {
		t.Errorf("error %v, want that there is a link", err)
	}
	if points, err := Below(mounted); err != nil || len(points) != 1 {
		t.Errorf("unmounted what a link leads to: %v, %v", points, err)
	}
}

func TestWhatIsNoMountPointIsNoError(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "inner")
	err := errors.Join(UnmountPoint(dir, 0), UnmountPoint(filepath.Join(inner, "none"), 0), Unmount(dir), Unmount(inner),
		Seclude([]string{inner, dir}))
	if err != nil {
		t.Error(err)
	}
}

// What still has an open file isn't unmounted unless it is detached.
func TestBusy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "busy")
	tmpfs(t, dir)
	f, err := os.Create(filepath.Join(dir, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := UnmountPoint(dir, 0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("error %v, want that it is busy", err)
	}
	if err := UnmountPoint(dir, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
	if points, err := Below(dir); err != nil || len(points) > 0 {
		t.Errorf("still mounted: %v, %v", points, err)
	}
}
