// Package disk measures filesystems and directories. It keeps nothing and starts nothing.
//
// # Guarantees
//
//   - A walk stays on the filesystem it began on, follows no links, counts each inode once and ends with its context.
//     Its memory is bounded, however many files and directories there are.
//   - Bytes are blocks on disk, as du counts them. Files that are deleted during the walk are left out.
package disk

import (
	"context"
	"errors"
	"fmt"
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
	err := unix.Statfs(path, &s)
	if err == nil {
		err = unix.Stat(path, &f)
	}
	if err != nil {
		return Filesystem{}, fmt.Errorf("measure the filesystem of %s: %w", path, err)
	}
	block := uint64(s.Bsize)
	return Filesystem{
		Capacity: s.Blocks * block, Available: s.Bavail * block, Used: (s.Blocks - s.Bfree) * block,
		Inodes: s.Files, InodesFree: s.Ffree, Device: f.Dev,
	}, nil
}

// StatToBe measures the filesystem that path is on, or will be on once it is made: that of its nearest parent.
func StatToBe(path string) (Filesystem, error) {
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		fs, err := Stat(at)
		if !errors.Is(err, unix.ENOENT) || at == filepath.Dir(at) {
			return fs, err
		}
	}
}

// Usage is what a directory takes up.
type Usage struct{ Bytes, Inodes uint64 }

// Add is the sum.
func (u Usage) Add(other Usage) Usage { return Usage{u.Bytes + other.Bytes, u.Inodes + other.Inodes} }

const (
	// maxDepth is how deep a walk goes. It keeps a descriptor open for each directory on the way. The longest path that
	// the kernel takes names nothing deeper.
	maxDepth = 2048
	// maxSeen bounds the inodes that are remembered because they have several names.
	maxSeen = 1 << 18
	// A directory is read in parts: large ones near the root, small ones where many are held at a time.
	largePart, smallPart, shallow = 32 << 10, 2 << 10, 16
)

// errDeep is the error of a tree that is deeper than any path.
var errDeep = fmt.Errorf("directories are nested more than %d deep, which is counted as the whole filesystem", maxDepth)

// Walk adds up the directory or file at path. The error says what could not be counted. The rest is counted all the
// same. A tree that is too deep counts as everything that is used of the filesystem, so that nothing can hide there.
func Walk(ctx context.Context, path string) (Usage, error) {
	var root unix.Stat_t
	if err := unix.Lstat(path, &root); err != nil {
		return Usage{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	w := walk{ctx: ctx, root: path, device: root.Dev, seen: map[uint64]struct{}{}}
	w.add(&root)
	if root.Mode&unix.S_IFMT == unix.S_IFDIR {
		w.dir(unix.AT_FDCWD, path, 0)
	}
	if fs, err := Stat(path); w.deep && err == nil {
		w.usage = Usage{max(w.usage.Bytes, fs.Used), max(w.usage.Inodes, fs.Inodes-fs.InodesFree)}
	}
	return w.usage, w.err
}

type walk struct {
	ctx    context.Context
	root   string
	device uint64
	// seen are inodes with more than one name.
	seen map[uint64]struct{}
	// parts are the buffers of the directories that are open, by depth.
	parts [][]byte
	usage Usage
	deep  bool
	err   error
}

// add counts an inode once. Inodes beyond the bound count once for each name, because counting too much is safe.
func (w *walk) add(s *unix.Stat_t) {
	if s.Nlink > 1 && s.Mode&unix.S_IFMT != unix.S_IFDIR {
		if _, ok := w.seen[s.Ino]; ok {
			return
		}
		if len(w.seen) < maxSeen {
			w.seen[s.Ino] = struct{}{}
		}
	}
	w.usage.Bytes += uint64(s.Blocks) * 512
	w.usage.Inodes++
}

// note keeps the first error that isn't the absence of what was just there.
func (w *walk) note(name string, err error) {
	if w.err == nil && !errors.Is(err, unix.ENOENT) {
		w.err = fmt.Errorf("count %s below %s: %w", filepath.Base(name), w.root, err)
	}
}

// dir adds what is in a directory. It is opened relative to its parent, so no link is followed and no path is too long.
func (w *walk) dir(parent int, name string, depth int) {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		w.note(name, err)
		return
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	if depth == len(w.parts) {
		size := smallPart
		if depth < shallow {
			size = largePart
		}
		w.parts = append(w.parts, make([]byte, size))
	}
	for {
		if w.ctx.Err() != nil {
			w.note(name, context.Cause(w.ctx))
			return
		}
		n, err := unix.ReadDirent(fd, w.parts[depth])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			w.note(name, err)
			return
		case n <= 0:
			return
		}
		_, _, names := unix.ParseDirent(w.parts[depth][:n], -1, nil)
		for _, name := range names {
			w.entry(fd, name, depth)
		}
	}
}

// entry adds one name of a directory and, where it is one itself, what is in it.
func (w *walk) entry(parent int, name string, depth int) {
	var s unix.Stat_t
	if err := unix.Fstatat(parent, name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		w.note(name, err)
		return
	}
	if s.Dev != w.device {
		return
	}
	w.add(&s)
	switch {
	case s.Mode&unix.S_IFMT != unix.S_IFDIR:
	case depth >= maxDepth:
		w.deep = true
		w.note(name, errDeep)
	case w.ctx.Err() == nil:
		w.dir(parent, name, depth+1)
	}
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
