package tree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/daemon/mounttest"
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
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte("data"), 0o600))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// mount mounts source at target, or a tmpfs, and unmounts what is below top in the end.
func mount(t *testing.T, source, top, target string) {
	t.Helper()
	fstype, flags := "", uintptr(unix.MS_BIND)
	if source == "tmpfs" {
		fstype, flags = "tmpfs", 0
	}
	must(t, unix.Mount(source, target, fstype, flags, ""))
	t.Cleanup(func() {
		points, _ := mountpoint.Below(top) // a deep one was moved
		for _, p := range points {
			_ = mountpoint.UnmountPoint(p, unix.MNT_DETACH)
		}
	})
}

// Whoever waits for a removal that takes long hears that it gets on, while it looks for mounts and while it removes.
func TestProgress(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	must(t, os.MkdirAll(top, 0o755))
	for i := range 3 * batch {
		must(t, os.WriteFile(filepath.Join(top, strconv.Itoa(i)), nil, 0o600))
	}
	told := 0
	must(t, Remove(WithProgress(t.Context(), func() { told++ }), top))
	if told < 5 {
		t.Errorf("it was told %d times that the removal of %d files gets on", told, 3*batch)
	}
}

func TestMountsAreRefused(t *testing.T) {
	outside := t.TempDir()
	for name, c := range map[string]struct{ source, target string }{
		"tmpfs":                       {"tmpfs", "x/mnt"},
		"bind of the same filesystem": {outside, "x/mnt"},
		"bind of a file":              {filepath.Join(outside, "precious"), "x/mnt/file"},
		"the tree itself":             {outside, "."},
		"deep":                        {outside, strings.Repeat("d/", maxDepth-1)},
		"deeper":                      {outside, strings.Repeat("d/", maxDepth+10)},
	} {
		t.Run(name, func(t *testing.T) {
			top := filepath.Join(t.TempDir(), "top")
			write(t, filepath.Join(outside, "precious"))
			write(t, filepath.Join(top, "a-first", "file"))
			write(t, filepath.Join(top, "x", "mnt", "file"))
			target := filepath.Join(top, c.target)
			if !exists(target) {
				must(t, os.MkdirAll(target, 0o755))
			}
			mount(t, c.source, top, target)
			if c.source == "tmpfs" {
				write(t, filepath.Join(target, "precious"))
			}
			err := Remove(t.Context(), top)
			if !errors.Is(err, ErrMounted) || !strings.Contains(err.Error(), target+" is still mounted") && name != "deeper" {
				t.Errorf("Remove returned %v, want that %s is still mounted", err, target)
			}
			if !exists(filepath.Join(outside, "precious")) || c.source == "tmpfs" && !exists(filepath.Join(target, "precious")) {
				t.Error("deleted through a mount point")
			}
			if name == "deeper" {
				return
			}
			must(t, unix.Unmount(target, unix.MNT_DETACH))
			if !exists(filepath.Join(top, "a-first", "file")) || !exists(filepath.Join(top, "x", "mnt", "file")) {
				t.Error("something was removed although a mount was left")
			}
			must(t, Remove(t.Context(), top))
			if exists(top) || !exists(filepath.Join(outside, "precious")) {
				t.Errorf("after the unmount: top is there: %v, outside is there: %v", exists(top),
					exists(filepath.Join(outside, "precious")))
			}
		})
	}
}

// A mount that appears after the look stops the removal where it is.
func TestALateMountStopsTheRemoval(t *testing.T) {
	outside, top := t.TempDir(), filepath.Join(t.TempDir(), "top")
	write(t, filepath.Join(outside, "precious"))
	write(t, filepath.Join(top, "mnt", "file"))
	mount(t, outside, top, filepath.Join(top, "mnt"))
	parent, err := os.Open(filepath.Dir(top))
	must(t, err)
	defer parent.Close()
	r := remover{ctx: t.Context()}
	if err := r.entry(parent, "top", 0); !errors.Is(err, ErrMounted) || !exists(filepath.Join(outside, "precious")) {
		t.Errorf("got %v, outside is there: %v", err, exists(filepath.Join(outside, "precious")))
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	outside, top := t.TempDir(), filepath.Join(t.TempDir(), "top")
	write(t, filepath.Join(outside, "precious"))
	must(t, os.Mkdir(top, 0o755))
	must(t, os.Symlink(outside, filepath.Join(top, "dir")))
	must(t, os.Symlink(filepath.Join(outside, "precious"), filepath.Join(top, "file")))
	must(t, os.Symlink(top, top+"-link"))
	must(t, Remove(t.Context(), top+"-link"))
	if !exists(top) || exists(top+"-link") {
		t.Error("a link at the top was followed")
	}
	must(t, Remove(t.Context(), top))
	if exists(top) || !exists(filepath.Join(outside, "precious")) {
		t.Errorf("top is there: %v, outside is there: %v", exists(top), exists(filepath.Join(outside, "precious")))
	}
}

// A container can make directories deeper than any path is long; removing them must not use up descriptors.
func TestADeepTree(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	must(t, os.Mkdir(top, 0o755))
	at, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	for range 3000 {
		must(t, unix.Mkdirat(at, "directory", 0o755))
		next, err := unix.Openat(at, "directory", unix.O_PATH|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(at))
		at = next
	}
	must(t, unix.Close(at))
	must(t, Remove(t.Context(), top))
	if exists(top) {
		t.Error("the tree is still there")
	}
}

func TestManyFiles(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	for i := range 3 * batch {
		write(t, filepath.Join(top, string(rune('a'+i%7)), strings.Repeat("n", i%50+1)+"-"+string(rune('a'+i%26))))
	}
	must(t, Remove(t.Context(), top))
	if exists(top) {
		t.Error("the tree is still there")
	}
	must(t, Remove(t.Context(), top))
	must(t, Remove(t.Context(), filepath.Join(top, "no", "parent")))
}

// What blocks when it is opened, or can't be opened at all, is removed like any file.
func TestSpecialFiles(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	must(t, os.Mkdir(top, 0o755))
	must(t, unix.Mkfifo(filepath.Join(top, "fifo"), 0o600))
	must(t, unix.Mknod(filepath.Join(top, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	must(t, Remove(t.Context(), filepath.Join(top, "fifo")))
	must(t, Remove(t.Context(), top))
	if exists(top) {
		t.Error("the tree is still there")
	}
}

func TestItEndsWithItsContext(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	must(t, os.Mkdir(top, 0o755))
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("enough")
	cancel(cause)
	if err := Remove(ctx, top); !errors.Is(err, cause) {
		t.Errorf("remove returned %v, want the context's cause", err)
	}
}
