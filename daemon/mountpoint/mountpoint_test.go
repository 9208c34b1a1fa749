package mountpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// The last of several mounts covers the others.
func TestOptions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	if options, err := Options(dir); options != "" || err != nil {
		t.Errorf("where nothing is mounted: %q, %v", options, err)
	}
	tmpfs(t, dir)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if options, err := Options(dir); !slices.Contains(strings.Split(options, ","), "size=64k") || err != nil {
		t.Errorf("%q, %v", options, err)
	}
}

// What is mounted at a path, and where else, is read from the table: a path may have links above its last element.
func TestMountedAndShared(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "real")
	staged, pods := filepath.Join(dir, "staged"), filepath.Join(dir, "pods")
	tmpfs(t, staged)
	inside, a, b := filepath.Join(staged, "part"), filepath.Join(pods, "a"), filepath.Join(pods, "b")
	other, outside := filepath.Join(pods, "other"), filepath.Join(dir, "outside")
	tmpfs(t, other)
	for from, to := range map[string]string{a: staged, b: inside, outside: staged} {
		if err := errors.Join(os.MkdirAll(from, 0o755), os.MkdirAll(to, 0o755),
			unix.Mount(to, from, "", unix.MS_BIND, "")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(from, unix.MNT_DETACH) })
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		staged: true, filepath.Join(link, "staged"): true, pods: false, inside: false,
		filepath.Join(base, "no", "path"): false,
	} {
		if got, err := Mounted(path); err != nil || got != want {
			t.Errorf("%s: mounted %v, %v; want %v", path, got, err, want)
		}
	}
	points, err := Shared(filepath.Join(link, "staged"), filepath.Join(link, "pods"))
	if slices.Sort(points); err != nil || !slices.Equal(points, []string{a, b}) {
		t.Errorf("shared at %q, %v; want %q", points, err, []string{a, b})
	}
	if points, err := Shared(pods, pods); err != nil || len(points) > 0 {
		t.Errorf("nothing is mounted there, and it is shared at %q, %v", points, err)
	}
}
