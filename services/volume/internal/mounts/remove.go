package mounts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mountpoint"
)

// ErrMounted is in the error of a removal that met a mount point and stopped there.
var ErrMounted = errors.New("something is mounted there, which isn't deleted through")

const (
	// maxDepth bounds the descriptors that one removal holds open: deeper directories, which any container
	// can make, are moved up first.
	maxDepth = 64
	// batch is how many names are read at once.
	batch = 1024
)

// resolve makes openat2 refuse symbolic links, mount points and ways out of the directory.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// Release unmounts dir and removes it with all its content. It ends early with ctx.
func Release(ctx context.Context, dir string) error {
	err := mountpoint.Unmount(dir)
	if err == nil {
		err = Remove(ctx, dir)
	}
	if !errors.Is(err, ErrMounted) && !errors.Is(err, unix.EBUSY) {
		return err
	}
	// A container with bidirectional propagation has left a mount inside.
	if err := UnmountBelow(dir); err != nil {
		return err
	}
	return Remove(ctx, dir)
}

// Remove removes path and all below it. It fails with ErrMounted where something is mounted, and ends early with ctx.
func Remove(ctx context.Context, path string) error {
	parent, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: open its parent: %w", path, err)
	}
	defer func() { _ = unix.Close(parent) }()
	r := remover{ctx: ctx, top: parent}
	for {
		r.moved = 0
		if err := r.entry(parent, filepath.Base(path), 0); err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
		if r.moved == 0 {
			return nil
		}
	}
}

// remover is one removal. Directories that are too deep are moved to its root, which is then removed again.
type remover struct {
	ctx   context.Context
	top   int
	root  int
	moved int
}

// entry removes name in the directory at.
func (r *remover) entry(at int, name string, depth int) error {
	if err := context.Cause(r.ctx); err != nil {
		return err
	}
	err := unix.Unlinkat(at, name, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s: %w", name, ErrMounted)
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM):
		return fmt.Errorf("unlink %s: %w", name, err)
	}
	if depth > maxDepth {
		return r.moveUp(at, name)
	}
	moved := r.moved
	if err := r.content(at, name, depth); err != nil {
		return err
	}
	if depth == 0 && r.moved > moved {
		return nil
	}
	return rmdir(at, name)
}

func rmdir(at int, name string) error {
	err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s: %w", name, ErrMounted)
	}
	return fmt.Errorf("remove directory %s: %w", name, err)
}

// content empties the directory name.
func (r *remover) content(at int, name string, depth int) error {
	dir, err := openDir(at, name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if depth == 0 {
		r.root = int(dir.Fd())
	}
	for {
		names, err := dir.Readdirnames(batch)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read directory %s: %w", name, err)
		}
		for _, child := range names {
			if err := r.entry(int(dir.Fd()), child, depth+1); err != nil {
				return fmt.Errorf("%s/%w", name, err)
			}
		}
		if len(names) == 0 {
			return nil
		}
		// Names may be left out where entries go away while a directory is read.
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if depth == 0 && r.moved > 0 {
			return nil
		}
	}
}

// moveUp moves a directory that is too deep to the root of the tree.
func (r *remover) moveUp(at int, name string) error {
	for range 1 << 20 {
		r.moved++
		err := unix.Renameat2(at, name, r.root, fmt.Sprintf("%sdeep-%d", stagingPrefix, r.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			if err != nil {
				return fmt.Errorf("move %s up: %w", name, err)
			}
			return nil
		}
	}
	return fmt.Errorf("move %s up: no free name", name)
}

func openDir(at int, name string) (*os.File, error) {
	fd, err := unix.Openat2(at, name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: resolve,
	})
	switch {
	case errors.Is(err, unix.EXDEV):
		return nil, fmt.Errorf("%s: %w", name, ErrMounted)
	case errors.Is(err, unix.ENOSYS):
		return nil, fmt.Errorf("open %s: this kernel has no openat2, kubelot needs Linux 5.6 or later: %w", name, err)
	case err != nil:
		return nil, fmt.Errorf("open directory %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
