package subpath

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mountpoint"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// place is a pod's directory and a volume outside of it, as a hostPath is.
func place(t *testing.T) (volume string, mount func(sub string) Mount) {
	t.Helper()
	pod, volume := t.TempDir(), t.TempDir()
	t.Cleanup(func() { _ = Clean(context.Background(), pod, "") })
	return volume, func(sub string) Mount {
		return Mount{PodDir: pod, Volume: "data", VolumePath: volume, Container: "app", Index: 3, SubPath: sub}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func TestBind(t *testing.T) {
	volume, mount := place(t)
	write(t, filepath.Join(volume, "dir", "file"), "content")
	must(t, os.Symlink("dir/file", filepath.Join(volume, "inside")))

	target, err := Bind(t.Context(), mount("dir"))
	must(t, err)
	if want := filepath.Join(mount("").PodDir, "volume-subpaths", "data", "app", "3"); target != want {
		t.Errorf("bound at %s, want %s", target, want)
	}
	if got := read(t, filepath.Join(target, "file")); got != "content" {
		t.Errorf("the directory shows %q", got)
	}
	for _, sub := range []string{"dir/file", "./dir//file", "inside"} {
		target, err := Bind(t.Context(), mount(sub))
		must(t, err)
		if got := read(t, target); got != "content" {
			t.Errorf("%s shows %q", sub, got)
		}
	}
	must(t, Clean(context.Background(), mount("").PodDir, "data"))
	if points, _ := mountpoint.Below(mount("").PodDir); len(points) > 0 {
		t.Errorf("still mounted: %v", points)
	}
	if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mount point is still there: %v", err)
	}
	if got := read(t, filepath.Join(volume, "dir", "file")); got != "content" {
		t.Errorf("the volume lost its file: %q", got)
	}
	must(t, Clean(context.Background(), mount("").PodDir, "data"))
}

// A link of the host may name a place in the volume by its whole path.
func TestBindFollowsAbsoluteLinks(t *testing.T) {
	volume, mount := place(t)
	write(t, filepath.Join(volume, "v1", "file"), "content")
	must(t, os.Symlink(filepath.Join(volume, "v1"), filepath.Join(volume, "current")))
	linked := mount("current/file")
	linked.VolumePath = filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(volume, linked.VolumePath))
	for _, m := range []Mount{mount("current/file"), linked} {
		target, err := Bind(t.Context(), m)
		must(t, err)
		if got := read(t, target); got != "content" {
			t.Errorf("shows %q", got)
		}
	}
}

func TestBindAgain(t *testing.T) {
	volume, mount := place(t)
	write(t, filepath.Join(volume, "file"), "old")
	target, err := Bind(t.Context(), mount("file"))
	must(t, err)
	_, err = Bind(t.Context(), mount("file"))
	must(t, err)
	if points, _ := mountpoint.Below(target); len(points) != 1 {
		t.Errorf("mounted %d times", len(points))
	}
	// An atomic update puts a new file in the old one's place.
	write(t, filepath.Join(volume, "new"), "new")
	must(t, os.Rename(filepath.Join(volume, "new"), filepath.Join(volume, "file")))
	_, err = Bind(t.Context(), mount("file"))
	must(t, err)
	if points, _ := mountpoint.Below(target); len(points) != 1 || read(t, target) != "new" {
		t.Errorf("mounted %d times, shows %q", len(points), read(t, target))
	}
	must(t, os.Remove(filepath.Join(volume, "file")))
	must(t, os.Mkdir(filepath.Join(volume, "file"), 0o755))
	_, err = Bind(t.Context(), mount("file"))
	must(t, err)
	if info, err := os.Stat(target); err != nil || !info.IsDir() {
		t.Errorf("a file that became a directory: %v, %v", info, err)
	}
}

func TestBindCreatesDirectories(t *testing.T) {
	volume, mount := place(t)
	must(t, os.Chown(volume, -1, 4711))
	must(t, os.Chmod(volume, 0o775|fs.ModeSetgid))
	_, err := Bind(t.Context(), mount("a/b/c"))
	must(t, err)
	for _, dir := range []string{"a", "a/b", "a/b/c"} {
		info, err := os.Stat(filepath.Join(volume, dir))
		must(t, err)
		if info.Mode() != fs.ModeDir|fs.ModeSetgid|0o775 || info.Sys().(*syscall.Stat_t).Gid != 4711 {
			t.Errorf("%s: mode %v, group %d", dir, info.Mode(), info.Sys().(*syscall.Stat_t).Gid)
		}
	}
}

func TestBindRefuses(t *testing.T) {
	volume, mount := place(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret"), "secret")
	write(t, filepath.Join(volume, "file"), "x")
	must(t, os.Symlink(outside, filepath.Join(volume, "abs")))
	must(t, os.Symlink("../"+filepath.Base(outside), filepath.Join(volume, "rel")))
	must(t, os.Symlink("/proc/self/root", filepath.Join(volume, "magic")))
	must(t, os.Symlink("loop", filepath.Join(volume, "loop")))
	for _, sub := range []string{
		"abs", "abs/secret", "abs/new", "rel", "rel/secret", "magic", "magic/etc", "loop", "loop/x", "../x", "a/../../x",
		"..", "/etc", "a\x00", "file/x",
	} {
		target, err := Bind(t.Context(), mount(sub))
		if err == nil {
			t.Errorf("subPath %q was bound at %s", sub, target)
			continue
		}
		if strings.Contains(err.Error(), outside) || strings.Contains(err.Error(), volume) {
			t.Errorf("subPath %q: the error tells of the host: %v", sub, err)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("something was made outside of the volume: %v", entries)
	}
	for _, bad := range []Mount{
		{Volume: "../x", Container: "app"},
		{Volume: "data", Container: ".."},
		{Volume: "", Container: "app"},
	} {
		bad.VolumePath, bad.SubPath, bad.PodDir = volume, "file", t.TempDir()
		if _, err := Bind(t.Context(), bad); err == nil {
			t.Errorf("volume %q, container %q were accepted", bad.Volume, bad.Container)
		}
	}
	gone := mount("file")
	gone.VolumePath = filepath.Join(volume, "none")
	if _, err := Bind(t.Context(), gone); err == nil {
		t.Error("a volume that isn't there was bound")
	}
}

// While a container swaps a directory of its volume for a link to the host, whatever is bound is the volume's.
func TestBindAgainstRaces(t *testing.T) {
	volume, mount := place(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "deep", "mark"), "outside")
	write(t, filepath.Join(volume, "dir", "deep", "mark"), "inside")
	must(t, os.Symlink(outside, filepath.Join(volume, "evil")))

	stop := make(chan struct{})
	var attacker sync.WaitGroup
	attacker.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(volume, "dir"), unix.AT_FDCWD, filepath.Join(volume, "evil"),
					unix.RENAME_EXCHANGE)
			}
		}
	})
	bound, refused := 0, map[string]int{}
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && (bound < 50 || len(refused) == 0); {
		_, _ = Bind(t.Context(), mount("dir/new-"+string(rune('a'+bound%26))))
		target, err := Bind(t.Context(), mount("dir/deep"))
		if err != nil {
			refused[err.Error()]++
			continue
		}
		bound++
		if got := read(t, filepath.Join(target, "mark")); got != "inside" {
			t.Fatalf("a directory of the host was bound: %q", got)
		}
		must(t, Clean(context.Background(), mount("").PodDir, "data"))
	}
	close(stop)
	attacker.Wait()
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("something was made outside of the volume: %v", entries)
	}
	if bound == 0 || len(refused) == 0 {
		t.Errorf("bound %d, refused %v: the race was not run", bound, refused)
	}
}

func FuzzBind(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "../x", "link/x", "link", "./a", "a//b", "", "."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sub string) {
		volume, mount := place(t)
		outside := t.TempDir()
		must(t, os.Symlink(outside, filepath.Join(volume, "link")))
		target, err := Bind(t.Context(), mount(sub))
		if entries, _ := os.ReadDir(outside); len(entries) > 0 {
			t.Fatalf("subPath %q made %v outside of the volume", sub, entries)
		}
		if err == nil {
			must(t, Clean(context.Background(), mount("").PodDir, "data"))
			if _, err := os.Stat(target); err == nil {
				t.Fatalf("subPath %q: the mount point is left", sub)
			}
		}
	})
}

// Directories of a volume whose files belong to a pod's own IDs on the host belong to these, too.
func TestMadeDirectoriesInheritTheOwner(t *testing.T) {
	for _, inherit := range []bool{false, true} {
		podDir, volume := t.TempDir(), t.TempDir()
		if err := os.Chown(volume, 70000, 71000); err != nil {
			t.Skip("not as root:", err)
		}
		at, err := Bind(t.Context(), Mount{
			PodDir: podDir, Volume: "v", VolumePath: volume, Container: "app", SubPath: "a/b", Inherit: inherit,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = Clean(context.Background(), podDir, "") })
		want := [2]uint32{}
		if inherit {
			want = [2]uint32{70000, 71000}
		}
		for _, dir := range []string{at, filepath.Join(volume, "a")} {
			var stat unix.Stat_t
			if err := unix.Stat(dir, &stat); err != nil || [2]uint32{stat.Uid, stat.Gid} != want {
				t.Errorf("%s belongs to %d:%d, %v; want %v", dir, stat.Uid, stat.Gid, err, want)
			}
		}
	}
}
