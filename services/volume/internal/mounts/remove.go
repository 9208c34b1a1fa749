package mounts

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/daemon/tree"
)

// Release unmounts dir and removes it with all its content. It ends early with ctx.
func Release(ctx context.Context, dir string) error {
	err := mountpoint.Unmount(dir)
	if err == nil {
		err = tree.Remove(ctx, dir)
	}
	if !errors.Is(err, tree.ErrMounted) && !errors.Is(err, unix.EBUSY) {
		return err
	}
	// A container with bidirectional propagation has left a mount inside.
	if err := UnmountBelow(dir); err != nil {
		return err
	}
	return tree.Remove(ctx, dir)
}
