package mounts

import (
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel says of the option is what it does with a mount.
func TestNoswap(t *testing.T) {
	says := Noswap()
	dir := t.TempDir()
	mounted := unix.Mount("tmpfs", dir, "tmpfs", 0, "noswap")
	if mounted == nil {
		must(t, unix.Unmount(dir, 0))
	}
	if (says == nil) != (mounted == nil) {
		t.Errorf("the kernel says %v of the option, and %v to a mount with it", says, mounted)
	}
}
