package mounts

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// owner is the group and the mode of what is at path itself.
func owner(t *testing.T, path string) (gid uint32, mode uint32) {
	t.Helper()
	var stat unix.Stat_t
	must(t, unix.Lstat(path, &stat))
	return stat.Gid, stat.Mode & 0o7777
}

func TestGiveToGroup(t *testing.T) {
	top, outside := filepath.Join(t.TempDir(), "top"), filepath.Join(t.TempDir(), "outside")
	inner, mounted := filepath.Join(top, "a", "b"), filepath.Join(top, "mounted")
	must(t, os.MkdirAll(inner, 0o700))
	must(t, os.Mkdir(mounted, 0o755))
	must(t, os.Mkdir(outside, 0o700))
	write(t, filepath.Join(inner, "file"))
	write(t, filepath.Join(outside, "file"))
	must(t, os.Chmod(filepath.Join(inner, "file"), 0o700|fs.ModeSetuid))
	must(t, os.Symlink(outside, filepath.Join(top, "link")))
	must(t, os.Symlink(filepath.Join(outside, "file"), filepath.Join(inner, "link")))
	must(t, unix.Mount(outside, mounted, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = UnmountBelow(top) })
	if HasGroup(top, 4711) {
		t.Error("the group has the directory before")
	}
	files := 0
	must(t, GiveToGroup(t.Context(), top, 4711, func(n int) { files = n }))
	if !HasGroup(top, 4711) || HasGroup(top, 1) || files != 6 {
		t.Errorf("the group has the directory: %v, another one: %v; %d files", HasGroup(top, 4711), HasGroup(top, 1), files)
	}
	for path, want := range map[string]uint32{
		inner: 0o2770, filepath.Join(inner, "file"): 0o4760,
		filepath.Join(top, "link"): 0o777,
	} {
		if gid, mode := owner(t, path); gid != 4711 || mode != want {
			t.Errorf("%s: group %d, mode %o, want %o", path, gid, mode, want)
		}
	}
	for _, path := range []string{outside, filepath.Join(outside, "file")} {
		if gid, mode := owner(t, path); gid == 4711 || mode&0o070 != 0 {
			t.Errorf("%s, which is outside: group %d, mode %o", path, gid, mode)
		}
	}
}

// A volume that was left half way is done again: its root isn't the group's yet.
func TestGiveToGroupEndsWithItsContext(t *testing.T) {
	top := t.TempDir()
	write(t, filepath.Join(top, "file"))
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("enough")
	cancel(cause)
	if err := GiveToGroup(ctx, top, 4711, func(int) {}); !errors.Is(err, cause) || HasGroup(top, 4711) {
		t.Errorf("got %v; the group has the directory: %v", err, HasGroup(top, 4711))
	}
}

func TestGiveToGroupDeepTree(t *testing.T) {
	top := t.TempDir()
	deep := top
	for range 200 {
		deep = filepath.Join(deep, "d")
	}
	must(t, os.MkdirAll(deep, 0o700))
	must(t, GiveToGroup(t.Context(), top, 4711, func(int) {}))
	if !HasGroup(deep, 4711) {
		t.Error("the deepest directory was left out")
	}
}
