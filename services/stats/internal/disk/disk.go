// Package disk measures filesystems and directories. It keeps nothing and starts nothing.
//
// # Guarantees
//
//   - A walk stays on the filesystem it began on, follows no links, counts each inode once and ends with its context. It holds one
//     directory's names at a time in memory.
//   - Bytes are blocks on disk, as du counts them; what is deleted while it is walked is left out.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Filesystem is the size and the use of a filesystem.
type Filesystem struct {
	Capacity, Available, Used uint64
	Inodes, InodesFree        uint64
	// Device is the number of its device.
	Device uint64
}

// Stat measures the filesystem that path is on.
func Stat(path string) (Filesystem, error) {
	var s unix.Statfs_t
	var f unix.Stat_t
	if err := errors.Join(unix.Statfs(path, &s), unix.Stat(path, &f)); err != nil {
		return Filesystem{}, fmt.Errorf("measure the filesystem of %s: %w", path, err)
	}
	block := uint64(s.Bsize)
	return Filesystem{
		Capacity: s.Blocks * block, Available: s.Bavail * block, Used: (s.Blocks - s.Bfree) * block,
		Inodes: s.Files, InodesFree: s.Ffree, Device: f.Dev,
	}, nil
}

// Usage is what a directory takes up.
type Usage struct{ Bytes, Inodes uint64 }

// Add is the sum.
func (u Usage) Add(other Usage) Usage { return Usage{u.Bytes + other.Bytes, u.Inodes + other.Inodes} }

// batch is how many names of a directory are read at a time.
const batch = 256

// Walk adds up the directory or file at path. The error says what could not be counted; the rest is.
func Walk(ctx context.Context, path string) (Usage, error) {
	var root unix.Stat_t
	if err := unix.Lstat(path, &root); err != nil {
		return Usage{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	w := walk{ctx: ctx, device: root.Dev, seen: map[uint64]struct{}{}}
	w.add(&root)
	if root.Mode&unix.S_IFMT == unix.S_IFDIR {
		w.dir(path)
	}
	return w.usage, w.err
}

type walk struct {
	ctx    context.Context
	device uint64
	// seen are the inodes with more than one name.
	seen  map[uint64]struct{}
	usage Usage
	err   error
}

func (w *walk) add(s *unix.Stat_t) {
	if s.Nlink > 1 && s.Mode&unix.S_IFMT != unix.S_IFDIR {
		if _, ok := w.seen[s.Ino]; ok {
			return
		}
		w.seen[s.Ino] = struct{}{}
	}
	w.usage.Bytes += uint64(s.Blocks) * 512
	w.usage.Inodes++
}

// note keeps the first error that isn't the absence of what was just there.
func (w *walk) note(err error) {
	if w.err == nil && err != nil && !errors.Is(err, os.ErrNotExist) {
		w.err = err
	}
}

func (w *walk) dir(path string) {
	if err := w.ctx.Err(); err != nil {
		w.note(fmt.Errorf("count %s: %w", path, context.Cause(w.ctx)))
		return
	}
	// A link that takes the directory's place isn't followed.
	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		w.note(err)
		return
	}
	var below []string
	for w.ctx.Err() == nil {
		names, err := d.Readdirnames(batch)
		below = append(below, w.names(d, names)...)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				w.note(err)
			}
			break
		}
	}
	d.Close()
	for _, name := range below {
		w.dir(filepath.Join(path, name))
	}
}

// names adds the entries and returns the directories among them that are to be walked.
func (w *walk) names(d *os.File, names []string) (below []string) {
	for _, name := range names {
		var s unix.Stat_t
		if err := unix.Fstatat(int(d.Fd()), name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if !errors.Is(err, unix.ENOENT) {
				w.note(&os.PathError{Op: "stat", Path: filepath.Join(d.Name(), name), Err: err})
			}
			continue
		}
		if s.Dev != w.device {
			continue
		}
		w.add(&s)
		if s.Mode&unix.S_IFMT == unix.S_IFDIR {
			below = append(below, name)
		}
	}
	return below
}

// Files adds up the files that are directly in a directory, as logs are; there being no directory is no error.
func Files(ctx context.Context, dir string) (Usage, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return Usage{}, nil
	}
	var sum Usage
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		u, walkErr := Walk(ctx, filepath.Join(dir, e.Name()))
		if walkErr != nil && !errors.Is(walkErr, os.ErrNotExist) {
			err = errors.Join(err, walkErr)
		}
		sum = sum.Add(u)
	}
	return sum, err
}
