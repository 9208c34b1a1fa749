package mounts

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Noswap reports why the kernel can't keep a tmpfs out of swap; nil where it can. Nothing is mounted for that. Linux
// can since 6.4, outside of user namespaces.
func Noswap() error {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open a tmpfs: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.FsconfigSetFlag(fd, "noswap"); err != nil {
		return fmt.Errorf("set the option noswap of a tmpfs: %w", err)
	}
	return nil
}
