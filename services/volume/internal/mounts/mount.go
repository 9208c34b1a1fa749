package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Tmpfs are the options of a tmpfs.
type Tmpfs struct {
	// SizeBytes bounds it; 0 means the kernel's default, half of the memory.
	SizeBytes int64
	// Mode is the mode of its root directory.
	Mode fs.FileMode
	// UID and GID are owner and group of its root directory; nil means root's.
	UID, GID *int64
}

// swappable is set once the kernel refused the noswap option (Linux before 6.4).
var swappable atomic.Bool

// EnsureTmpfs mounts a tmpfs at dir, which exists, unless something is mounted there already. Its pages aren't
// written to swap where the kernel can promise that.
func EnsureTmpfs(dir string, o Tmpfs) error {
	mounted, err := Mounted(dir)
	if err != nil || mounted {
		return err
	}
	options := o.data()
	if !swappable.Load() {
		err := mount("tmpfs", dir, options+",noswap")
		if !errors.Is(err, unix.EINVAL) {
			return err
		}
		swappable.Store(true)
	}
	return mount("tmpfs", dir, options)
}

func (o Tmpfs) data() string {
	options := fmt.Sprintf("mode=%o", unixMode(o.Mode))
	if o.SizeBytes > 0 {
		options += fmt.Sprintf(",size=%d", o.SizeBytes)
	}
	return options + owners(o.UID, o.GID)
}

// owners are the options for a root directory's owner and group.
func owners(uid, gid *int64) (options string) {
	if uid != nil {
		options += fmt.Sprintf(",uid=%d", *uid)
	}
	if gid != nil {
		options += fmt.Sprintf(",gid=%d", *gid)
	}
	return options
}

// EnsureHugetlbfs mounts huge pages of that size at dir, which exists, unless something is mounted there already.
func EnsureHugetlbfs(dir string, pageBytes int64, mode fs.FileMode, uid, gid *int64) error {
	mounted, err := Mounted(dir)
	if err != nil || mounted {
		return err
	}
	options := fmt.Sprintf("pagesize=%d,mode=%o", pageBytes, unixMode(mode))
	return mount("hugetlbfs", dir, options+owners(uid, gid))
}

// Bind makes the file or directory behind an open descriptor appear at target, whatever
// its path names by then.
func Bind(fd int, target string) error {
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind mount at %s: %w", target, err)
	}
	return nil
}

// Mounted reports whether dir is a mount point; a dir that doesn't exist is none.
func Mounted(dir string) (bool, error) {
	mounted, err := mountinfo.Mounted(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return mounted, err
}

func mount(fstype, dir, options string) error {
	if err := unix.Mount(fstype, dir, fstype, 0, options); err != nil {
		return fmt.Errorf("mount %s with options %q at %s: %w", fstype, options, dir, err)
	}
	return nil
}

// unixMode is the mode in the bits that the kernel's mount options use.
func unixMode(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{
		fs.ModeSetuid: unix.S_ISUID, fs.ModeSetgid: unix.S_ISGID,
		fs.ModeSticky: unix.S_ISVTX,
	} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
