package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth bounds the descriptors that one removal holds open: deeper directories, which any container
	// can make, are moved up first.
	maxDepth = 64
	// batch is how many names are read at once.
	batch = 1024
)

type progressKey struct{}

// WithProgress has removals with the context call alive after each thousand entries or so.
func WithProgress(ctx context.Context, alive func()) context.Context {
	return context.WithValue(ctx, progressKey{}, alive)
}

// Remove removes path and all below it. It fails with ErrMounted where something is mounted. It ends early with ctx,
// whose cause it returns.
func Remove(ctx context.Context, path string) error {
	fd, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	parent := os.NewFile(uintptr(fd), filepath.Dir(path))
	defer parent.Close()
	name := filepath.Base(path)
	r := remover{ctx: ctx, alive: func() {}}
	if alive, ok := ctx.Value(progressKey{}).(func()); ok {
		r.alive = alive
	}
	if err := r.look(parent, name, 0); err != nil {
		return err
	}
	for {
		r.moved = 0
		if err := r.entry(parent, name, 0); err != nil {
			return err
		}
		if r.moved == 0 {
			return nil
		}
	}
}

// look fails with ErrMounted if the entry name of dir, or something below it, is a mount point.
func (r *remover) look(dir *os.File, name string, depth int) error {
	if err := r.step(); err != nil {
		return err
	}
	child, err := OpenDir(dir, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return lookAtFile(dir, name)
	case err != nil:
		return err
	}
	defer child.Close()
	if depth >= maxDepth {
		return nil
	}
	for {
		names, err := readNames(child)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, n := range names {
			if err := r.look(child, n, depth+1); err != nil {
				return err
			}
		}
	}
}

// lookAtFile is look for what is no directory, which may be a mount point as well.
func lookAtFile(dir *os.File, name string) error {
	fd, err := unix.Openat2(int(dir.Fd()), name,
		&unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: Beneath})
	switch {
	case errors.Is(err, unix.EXDEV):
		return mounted(dir, name)
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return pathError("open", dir, name, err)
	}
	return unix.Close(fd)
}

// remover is one removal. Directories that are too deep are moved to the tree's root, which is then removed again.
type remover struct {
	ctx   context.Context
	alive func()
	root  *os.File
	moved int
	steps int
}

// step is called for each entry, and fails once the context has ended.
func (r *remover) step() error {
	if r.steps++; r.steps%batch == 0 {
		r.alive()
	}
	return context.Cause(r.ctx)
}

// entry removes name in the directory dir.
func (r *remover) entry(dir *os.File, name string, depth int) error {
	if err := r.step(); err != nil {
		return err
	}
	err := unlink(dir, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	if depth > maxDepth {
		return r.moveUp(dir, name)
	}
	moved := r.moved
	if err := r.content(dir, name, depth); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if depth == 0 && r.moved > moved {
		return nil
	}
	return unlink(dir, name, unix.AT_REMOVEDIR)
}

// unlink removes one name; that it is gone already is no error.
func unlink(dir *os.File, name string, flags int) error {
	err := unix.Unlinkat(int(dir.Fd()), name, flags)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return mounted(dir, name)
	}
	return pathError("remove", dir, name, err)
}

// content empties the directory name.
func (r *remover) content(parent *os.File, name string, depth int) error {
	dir, err := OpenDir(parent, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if depth == 0 {
		r.root = dir
	}
	for {
		names, err := readNames(dir)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, child := range names {
			if err := r.entry(dir, child, depth+1); err != nil {
				return err
			}
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

// readNames are the next names of the directory; none at its end.
func readNames(dir *os.File) ([]string, error) {
	names, err := dir.Readdirnames(batch)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// moveUp moves a directory that is too deep to the root of the tree.
func (r *remover) moveUp(dir *os.File, name string) error {
	for range 1 << 20 {
		r.moved++
		err := unix.Renameat2(int(dir.Fd()), name, int(r.root.Fd()), fmt.Sprintf(".kubelot-deep-%d", r.moved),
			unix.RENAME_NOREPLACE)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return pathError("move up", dir, name, err)
		}
	}
	return pathError("move up", dir, name, errors.New("no free name"))
}
