package mounts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/tree"
)

// The modes that a group needs to use files and directories, the kubelet's.
const (
	groupFile = 0o660
	groupDir  = groupFile | unix.S_ISGID | 0o110
)

// HasGroup reports whether dir belongs to the group, which may use it, and hands the group down. What is below may be
// different.
func HasGroup(dir string, gid int64) bool {
	var stat unix.Stat_t
	if unix.Stat(dir, &stat) != nil {
		return false
	}
	const want = groupDir
	return stat.Mode&unix.S_IFMT == unix.S_IFDIR && int64(stat.Gid) == gid && stat.Mode&want == want
}

// GiveToGroup gives dir and all below it to the group, which may then use it. It follows no symbolic link, enters no
// mount point, and leaves alone what is right already. Dir itself comes last, so that HasGroup reports whether it was
// finished. What can't be changed, such as an immutable file, stays as it is, as with the kubelet. It ends early with
// ctx. Step is called from time to time with the number of files that are done.
func GiveToGroup(ctx context.Context, dir string, gid int64, step func(files int)) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("give %s to the group %d: %w", dir, gid, err)
	}
	top := os.NewFile(uintptr(fd), dir)
	defer func() { _ = top.Close() }()
	g := giver{ctx: ctx, top: top, gid: int(gid), step: step, pending: []string{"."}}
	for len(g.pending) > 0 {
		last := len(g.pending) - 1
		path := g.pending[last]
		g.pending = g.pending[:last]
		if err := g.below(path); err != nil {
			return fmt.Errorf("give %s to the group %d: %w", dir, gid, err)
		}
	}
	if err := g.give(fd); err != nil {
		return fmt.Errorf("give %s to the group %d: %w", dir, gid, err)
	}
	return nil
}

// batch is how many entries of a directory are read at once.
const batch = 1024

// giver is one change of a tree's group. Directories that are still to be done are remembered by their paths, not by
// descriptors, of which a deep tree would need too many.
type giver struct {
	ctx     context.Context
	top     *os.File
	gid     int
	step    func(int)
	files   int
	pending []string
}

// below does the entries of one directory.
func (g *giver) below(path string) error {
	dir, err := tree.OpenDir(g.top, path)
	if errors.Is(err, tree.ErrMounted) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ELOOP) {
		return nil // of somebody else, or no longer there
	}
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	for {
		entries, err := dir.ReadDir(batch)
		for _, e := range entries {
			if err := g.entry(int(dir.Fd()), path, e); err != nil {
				return err
			}
		}
		g.files += len(entries)
		g.step(g.files)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read directory %s: %w", path, err)
		}
	}
}

func (g *giver) entry(at int, path string, e fs.DirEntry) error {
	if err := context.Cause(g.ctx); err != nil {
		return err
	}
	fd, err := unix.Openat2(at, e.Name(), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: tree.Beneath,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) {
		return nil // gone meanwhile, or a mount of somebody else
	}
	if err != nil {
		return fmt.Errorf("open %s/%s: %w", path, e.Name(), err)
	}
	defer func() { _ = unix.Close(fd) }()
	if e.IsDir() {
		g.pending = append(g.pending, path+"/"+e.Name())
	}
	return g.give(fd)
}

// give changes one file by its descriptor, whatever its name means by then.
func (g *giver) give(fd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	changed := int(stat.Gid) != g.gid
	if changed {
		if err := unix.Fchownat(fd, "", -1, g.gid, unix.AT_EMPTY_PATH); err != nil {
			return passing(err)
		}
	}
	want := stat.Mode | groupFile
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
		want = stat.Mode | groupDir
	}
	if want == stat.Mode && !changed {
		return nil
	}
	// A descriptor of a path alone can't be changed by fchmod; its name in /proc can. Chown has cleared the setuid bit.
	return passing(unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), want&^unix.S_IFMT))
}

// passing lets pass what concerns one file only, or what the filesystem can't do or has no room for: a pod without its
// group may do without it, and is the only one who can make room. The kubelet passes over all that chown and chmod say.
func passing(err error) error {
	for _, pass := range []error{
		unix.EPERM, unix.EACCES, unix.EROFS, unix.ENOENT, unix.ENOSYS, unix.EOPNOTSUPP, unix.EINVAL, unix.EDQUOT,
		unix.ENOSPC,
	} {
		if errors.Is(err, pass) {
			return nil
		}
	}
	return err
}
