package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"kubelot.dev/services/volume/internal/atomicwriter"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/payload"
)

// fileVolume is a volume whose files kubelot writes and keeps up to date.
type fileVolume struct {
	collect collector
	// memory is true for secret material, which never goes to a disk.
	memory bool
	kernel string
}

func (v fileVolume) Mount(ctx context.Context, r Request) (Result, error) {
	own, err := ownerOf(ctx, r, !v.memory || mounts.MapsTmpfs(v.kernel))
	if err != nil {
		return Result{}, err
	}
	content, err := v.collect(ctx, r)
	if err != nil && v.present(r.Dir) {
		// What was written before, by an earlier run perhaps, serves until the source is there again.
		return fileResult(r.Dir, own, content), err
	}
	if err != nil {
		return Result{}, err
	}
	if err := atomicwriter.Check(content.files); err != nil {
		return Result{}, err
	}
	belong, err := own.files(r, content.files)
	if err != nil {
		return Result{}, err
	}
	gid := payload.FSGroup(r.Pod)
	if _, err := mounts.EnsureDir(ctx, r.Dir, shared(gid), gid); err != nil {
		return Result{}, err
	}
	if v.memory {
		o := mounts.Tmpfs{Mode: shared(gid) | fs.ModeSticky, UID: own.uid, GID: own.gid}
		if err := mounts.EnsureTmpfs(r.Dir, o); err != nil {
			return Result{}, err
		}
	}
	if err := makeNested(r); err != nil {
		return Result{}, err
	}
	if err := context.Cause(ctx); err != nil {
		return Result{}, err
	}
	if _, err := atomicwriter.Write(r.Dir, content.files, belong); err != nil {
		return Result{}, fmt.Errorf("write the files: %w", err)
	}
	return fileResult(r.Dir, own, content), nil
}

func fileResult(dir string, own owner, content collected) Result {
	return Result{
		HostPath: dir, ReadOnly: true, SELinuxRelabel: true, HostIDs: own.onHost(), RefreshAt: content.refreshAt,
		Warning: content.warning,
	}
}

// present reports whether the volume has been written once.
func (v fileVolume) present(dir string) bool {
	if !atomicwriter.Written(dir) {
		return false
	}
	mounted, err := mounts.Mounted(dir)
	return err == nil && mounted == v.memory
}

func (v fileVolume) Unmount(ctx context.Context, dir string) error { return mounts.Release(ctx, dir) }

// makeNested makes the mount points of volumes that a container mounts inside this one.
func makeNested(r Request) error {
	dirs := payload.Nested(r.Volume.Name, r.Pod)
	if len(dirs) == 0 {
		return nil
	}
	root, err := os.OpenRoot(r.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, dir := range dirs {
		if strings.HasPrefix(dir, "..") {
			return fmt.Errorf("a container mounts another volume at %q inside this one: that name is reserved", dir)
		}
		if err := root.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create the mount point %q of another volume inside this one: %w", dir, err)
		}
	}
	return nil
}
