package mounts

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mounttest"
	"kubelot.dev/daemon/tree"
)

func TestMain(m *testing.M) {
	mounttest.Enter()
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte("data"), 0o600))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// tmpfs mounts a tmpfs and unmounts it in the end.
func tmpfs(t *testing.T, dir string, o Tmpfs) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	must(t, EnsureTmpfs(dir, o))
	t.Cleanup(func() { _ = UnmountBelow(dir) })
}

func TestEnsureDir(t *testing.T) {
	gid := int64(4711)
	dir := filepath.Join(t.TempDir(), "a", "b", "volume")
	made, err := EnsureDir(t.Context(), dir, 0o777|fs.ModeSetgid, &gid)
	must(t, err)
	info, err := os.Stat(dir)
	must(t, err)
	if !made || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o777 || info.Sys().(*syscall.Stat_t).Gid != 4711 {
		t.Errorf("made %v with mode %v and group %d", made, info.Mode(), info.Sys().(*syscall.Stat_t).Gid)
	}
	if info, err := os.Stat(filepath.Dir(dir)); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the parent has mode %v (%v), want 0750", info.Mode(), err)
	}

	must(t, os.Chmod(dir, 0o700))
	if made, err := EnsureDir(t.Context(), dir, 0o777, nil); made || err != nil {
		t.Errorf("made an existing directory again: %v, %v", made, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("changed the mode of an existing directory to %v (%v)", info.Mode(), err)
	}

	file := filepath.Join(t.TempDir(), "file")
	write(t, file)
	if _, err := EnsureDir(t.Context(), file, 0o777, nil); err == nil {
		t.Error("a file in the way is no error")
	}
}

func TestEnsureDirCompletesAnInterruptedOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	must(t, os.Mkdir(filepath.Join(filepath.Dir(dir), stagingPrefix+"volume"), 0o700))
	made, err := EnsureDir(t.Context(), dir, 0o777, nil)
	if info, statErr := os.Stat(dir); !made || err != nil || statErr != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("made %v: %v, %v", made, err, statErr)
	}
}

func TestEnsureTmpfs(t *testing.T) {
	gid := int64(4711)
	dir := filepath.Join(t.TempDir(), "memory")
	tmpfs(t, dir, Tmpfs{SizeBytes: 1 << 20, Mode: 0o777 | fs.ModeSetgid | fs.ModeSticky, GID: &gid})
	write(t, filepath.Join(dir, "file"))
	must(t, EnsureTmpfs(dir, Tmpfs{}))
	if !exists(filepath.Join(dir, "file")) {
		t.Error("a second tmpfs was mounted over the first")
	}
	info, err := os.Stat(dir)
	must(t, err)
	if info.Mode() != fs.ModeDir|fs.ModeSticky|fs.ModeSetgid|0o777 || info.Sys().(*syscall.Stat_t).Gid != 4711 {
		t.Errorf("mode %v, group %d", info.Mode(), info.Sys().(*syscall.Stat_t).Gid)
	}
	var stat unix.Statfs_t
	must(t, unix.Statfs(dir, &stat))
	if size := int64(stat.Blocks) * stat.Bsize; size != 1<<20 {
		t.Errorf("size %d, want 1 MiB", size)
	}
}

func TestRemoveStopsAtMounts(t *testing.T) {
	for name, place := range map[string]func(t *testing.T, top string) (witness string){
		"tmpfs": func(t *testing.T, top string) string {
			tmpfs(t, filepath.Join(top, "x", "mnt"), Tmpfs{Mode: 0o755})
			return filepath.Join(top, "x", "mnt", "precious")
		},
		"bind of the same filesystem": func(t *testing.T, top string) string {
			source, target := t.TempDir(), filepath.Join(top, "x", "mnt")
			must(t, os.MkdirAll(target, 0o755))
			must(t, unix.Mount(source, target, "", unix.MS_BIND, ""))
			t.Cleanup(func() { _ = UnmountBelow(target) })
			return filepath.Join(source, "precious")
		},
		"bind of a file": func(t *testing.T, top string) string {
			source, target := filepath.Join(t.TempDir(), "precious"), filepath.Join(top, "x", "mnt")
			must(t, os.MkdirAll(filepath.Dir(target), 0o755))
			write(t, source)
			write(t, target)
			must(t, unix.Mount(source, target, "", unix.MS_BIND, ""))
			t.Cleanup(func() { _ = UnmountBelow(target) })
			return source
		},
	} {
		t.Run(name, func(t *testing.T) {
			top := filepath.Join(t.TempDir(), "top")
			witness := place(t, top)
			write(t, witness)
			if err := tree.Remove(t.Context(), top); !errors.Is(err, tree.ErrMounted) {
				t.Errorf("Remove returned %v, want ErrMounted", err)
			}
			if !exists(witness) {
				t.Error("deleted through a mount point")
			}
			if !strings.HasPrefix(witness, top) {
				must(t, Release(context.Background(), top))
				if !exists(witness) || exists(top) {
					t.Errorf("after Release: witness %v, volume %v", exists(witness), exists(top))
				}
			}
		})
	}
}

func TestReleaseUnmountsAndRemoves(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	tmpfs(t, dir, Tmpfs{Mode: 0o755})
	tmpfs(t, filepath.Join(dir, "inner"), Tmpfs{Mode: 0o755})
	write(t, filepath.Join(dir, "inner", "file"))
	// The inner mount keeps the outer one busy, as a bidirectional mount of a container does.
	must(t, Release(context.Background(), dir))
	if exists(dir) {
		t.Error("the volume is still there")
	}
	must(t, Release(context.Background(), dir))
}
