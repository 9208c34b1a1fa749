package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, file string, size int) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, make([]byte, size), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	empty, err := Walk(t.Context(), dir)
	if err != nil || empty.Inodes != 1 {
		t.Fatalf("empty directory: %+v, %v", empty, err)
	}
	for i := range 3 * batch {
		write(t, filepath.Join(dir, "many", fmt.Sprint(i)), 1)
	}
	write(t, filepath.Join(dir, "a/b/c/file"), 1<<20)
	if err := errors.Join(
		os.Link(filepath.Join(dir, "a/b/c/file"), filepath.Join(dir, "same")),
		os.Symlink("/", filepath.Join(dir, "link")),
	); err != nil {
		t.Fatal(err)
	}
	u, err := Walk(t.Context(), dir)
	if want := uint64(1 + 1 + 3*batch + 3 + 1 + 1); err != nil || u.Inodes != want {
		t.Errorf("%d inodes, %v; want %d", u.Inodes, err, want)
	}
	if u.Bytes < 1<<20 || u.Bytes > 1<<20+4096*(3*batch+10) {
		t.Errorf("%d bytes: the file with two names counts once", u.Bytes)
	}
	files, err := Files(t.Context(), filepath.Join(dir, "many"))
	if err != nil || files.Inodes != 3*batch {
		t.Errorf("files %+v, %v", files, err)
	}
}

func TestWalkStaysOnItsFilesystem(t *testing.T) {
	// /dev/shm or /proc are below the root, each a filesystem of its own; / itself would take too long.
	dev, err := Walk(t.Context(), "/dev")
	if err != nil {
		t.Skip(err)
	}
	var counted uint64
	err = filepath.WalkDir("/dev", func(string, os.DirEntry, error) error { counted++; return nil })
	if err != nil || dev.Inodes > counted {
		t.Errorf("%d inodes below /dev, of %d with all filesystems there (%v)", dev.Inodes, counted, err)
	}
}

func TestWalkEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := Walk(ctx, t.TempDir()); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("error %v", err)
	}
	if _, err := Walk(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if u, err := Files(t.Context(), filepath.Join(t.TempDir(), "none")); err != nil || u != (Usage{}) {
		t.Errorf("logs of a pod that has none: %+v, %v", u, err)
	}
}

func TestStat(t *testing.T) {
	fs, err := Stat(t.TempDir())
	if err != nil || fs.Capacity == 0 || fs.Used+fs.Available > fs.Capacity {
		t.Errorf("%+v, %v", fs, err)
	}
	if _, err := Stat("/no/such"); err == nil || !strings.Contains(err.Error(), "/no/such") {
		t.Errorf("error %v: want one that names the path", err)
	}
}
