package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, file string, size int) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, make([]byte, size),
		0o644)); err != nil {
		t.Fatal(err)
	}
}

// many is more than one part of a directory holds.
const many = 3000

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	empty, err := Walk(t.Context(), dir)
	if err != nil || empty.Inodes != 1 {
		t.Fatalf("empty directory: %+v, %v", empty, err)
	}
	for i := range many {
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
	if want := uint64(1 + 1 + many + 3 + 1 + 1); err != nil || u.Inodes != want {
		t.Errorf("%d inodes, %v; want %d", u.Inodes, err, want)
	}
	if u.Bytes < 1<<20 || u.Bytes > 1<<20+4096*(many+100) {
		t.Errorf("%d bytes: the file with two names counts once", u.Bytes)
	}
	files, err := Files(t.Context(), filepath.Join(dir, "many"))
	if err != nil || files.Inodes != many {
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

// A directory that is still to be made counts for the filesystem of its nearest parent.
func TestStatToBe(t *testing.T) {
	dir := t.TempDir()
	want, err := Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "not", "yet"), filepath.Join(dir, "not")} {
		if got, err := StatToBe(path); err != nil || got.Device != want.Device {
			t.Errorf("%s: device %d, %v, want device %d", path, got.Device, err, want.Device)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := StatToBe(filepath.Join(file, "below")); err == nil {
		t.Error("no error below a file")
	}
}

// chain makes directories in one another, deeper than a path can say, and returns the innermost.
func chain(t *testing.T, top string, depth int) (innermost int) {
	t.Helper()
	fd, err := unix.Open(top, unix.O_DIRECTORY, 0)
	for range depth {
		if err != nil {
			t.Fatal(err)
		}
		const name = "a-directory-with-a-name-of-some-length"
		var next int
		if err = unix.Mkdirat(fd, name, 0o755); err == nil {
			next, err = unix.Openat(fd, name, unix.O_DIRECTORY, 0)
		}
		unix.Close(fd)
		fd = next
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// What is deeper than a path can say is counted, and what is too deep even for that counts as everything.
func TestNothingHidesInTheDepth(t *testing.T) {
	for depth, tooDeep := range map[int]bool{500: false, maxDepth + 10: true} {
		top := t.TempDir()
		fd := chain(t, top, depth)
		file, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
		if err == nil {
			err = errors.Join(unix.Fallocate(file, 0, 0, 1<<20), unix.Close(file), unix.Close(fd))
		}
		if err != nil {
			t.Fatal(err)
		}
		u, err := Walk(t.Context(), top)
		if errors.Is(err, errDeep) != tooDeep || u.Bytes < 1<<20 || !tooDeep && (err != nil || u.Inodes != uint64(depth+2)) {
			t.Errorf("%d deep: %+v, %v", depth, u, err)
		}
	}
}

// A pod's millions of names cost this daemon no memory.
func TestWalkHoldsLittle(t *testing.T) {
	const dirs = 10000
	top := t.TempDir()
	for i := range dirs {
		if err := os.Mkdir(filepath.Join(top, fmt.Sprintf("%d-%s", i, strings.Repeat("x", 200))), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := walk{ctx: t.Context(), root: top, seen: map[uint64]struct{}{}}
	w.device = deviceOf(t, top)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	names := 0
	w.ctx = probe{t.Context(), func() {
		if names++; names%(dirs/2) == 0 {
			runtime.GC()
			runtime.ReadMemStats(&after)
			if after.HeapAlloc > before.HeapAlloc+1<<20 {
				t.Errorf("%d bytes are held", after.HeapAlloc-before.HeapAlloc)
			}
		}
	}}
	w.dir(unix.AT_FDCWD, top, 0)
	if w.err != nil || w.usage.Inodes != dirs || names < dirs {
		t.Errorf("%+v, %v", w.usage, w.err)
	}
	for i := range uint64(maxSeen + 10) {
		w.add(&unix.Stat_t{Nlink: 2, Ino: i})
	}
	if len(w.seen) != maxSeen || w.usage.Inodes != dirs+maxSeen+10 {
		t.Errorf("%d inodes are remembered, %d counted", len(w.seen), w.usage.Inodes)
	}
}

// probe is a context that tells when it is looked at.
type probe struct {
	context.Context
	looked func()
}

func (p probe) Err() error {
	p.looked()
	return p.Context.Err()
}

func deviceOf(t *testing.T, path string) uint64 {
	t.Helper()
	fs, err := Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fs.Device
}
