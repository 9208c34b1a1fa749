// Package image builds the disk of the virtual machine that the tests of test/vm run in: Debian 12 with systemd, its
// cloud kernel, a container runtime of Debian's own, and an initramfs that finds the disk.
//
// Reads: the packages of Debian's mirror, as this machine's apt is configured. Writes and owns: .cache/vm, where a
// directory per recipe has the parts.
//
// Guarantees: an image that is there is complete, and is made anew when its recipe changes: the list of packages, and
// the files that are embedded here. Nobody writes to it: a machine runs on an overlay.
package image

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"kubelot.dev/test/testbed/tools"
)

// packages are what a node has: what kubeadm's preflight asks for, Debian's container runtime, what people look around
// with, and the clients of network volumes with servers for them.
var packages = []string{
	"systemd", "systemd-sysv", "dbus", "udev", "kmod", "procps", "mount", "util-linux", "e2fsprogs", "openssh-server",
	"iproute2", "iptables", "nftables", "conntrack", "ethtool", "socat", "ca-certificates", "curl", "less",
	"apparmor", "libseccomp2", "containernetworking-plugins", "containerd", "runc",
	"nfs-common", "nfs-kernel-server", "open-iscsi", "tgt",
}

// HostPackages are what building an image and running a machine need on this side.
var HostPackages = []string{
	"mmdebstrap", "busybox-static", "kmod", "cpio", "e2fsprogs", "qemu-system-x86", "qemu-utils", "openssh-client",
}

//go:embed build.sh files
var recipe embed.FS

// Image is a machine's parts. They must not be written to.
type Image struct {
	Kernel string
	Initrd string // cpio; more of them may follow it
	Disk   string // raw, an ext4 filesystem
}

// Ensure builds the image if its recipe hasn't been built yet: a minute or two. Progress goes to out.
func Ensure(ctx context.Context, box *tools.Box, out io.Writer) (*Image, error) {
	if err := box.EnsurePackages(ctx, HostPackages); err != nil {
		return nil, err
	}
	key, err := hashOf(recipe, packages)
	if err != nil {
		return nil, fmt.Errorf("build the machine's image: %w", err)
	}
	cache := filepath.Join(box.Root, ".cache", "vm")
	dir := filepath.Join(cache, key)
	unlock, err := lock(cache)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(out, "vm: building the machine's image in %s\n", dir)
		if err := build(ctx, box, dir); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, fmt.Errorf("build the machine's image: %w", err)
	}
	return &Image{
		Kernel: filepath.Join(dir, "vmlinuz"), Initrd: filepath.Join(dir, "initrd.cpio"),
		Disk: filepath.Join(dir, "disk.img"),
	}, nil
}

// build makes the image beside its place and moves it there when it is complete. Those of other recipes go.
func build(ctx context.Context, box *tools.Box, dir string) error {
	cache := filepath.Dir(dir)
	old, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil {
		return fmt.Errorf("build the machine's image: %w", err)
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove an old image of the machine: %w", err)
		}
	}
	half := dir + ".new"
	if err := os.MkdirAll(half, 0o755); err != nil {
		return fmt.Errorf("build the machine's image: %w", err)
	}
	script := filepath.Join(box.Root, "test", "vm", "image", "build.sh")
	out, err := exec.CommandContext(ctx, script, append([]string{half}, packages...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the machine's image: %s %s: %w; its last words:\n%s", script, half, err,
			out[max(0, len(out)-4000):])
	}
	if err := os.Rename(half, dir); err != nil {
		return fmt.Errorf("build the machine's image: %w", err)
	}
	return nil
}

// hashOf names a recipe by everything that it depends on but the state of Debian's mirror.
func hashOf(files fs.FS, packages []string) (string, error) {
	sum := sha256.New()
	for _, name := range packages {
		fmt.Fprintln(sum, name)
	}
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		fmt.Fprintln(sum, path, len(data))
		_, _ = sum.Write(data)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:8]), err
}

// lock has only one process at a time build an image.
func lock(cache string) (unlock func(), err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("lock the machine's image: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(cache, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the machine's image: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock the machine's image: %w", err)
	}
	return func() { _ = file.Close() }, nil
}
