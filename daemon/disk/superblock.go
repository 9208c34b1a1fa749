package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Superblock is the number of the device of the filesystem that path is on, or will be on once it is made. It is the
// mount's: stat names a device of its own for each subvolume of a btrfs, though they share their space. Where the
// kernel doesn't say which mount it is (before Linux 5.8), it is the device that stat names.
func Superblock(path string, byStat uint64) uint64 {
	var s unix.Statx_t
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		err := unix.Statx(unix.AT_FDCWD, at, 0, unix.STATX_MNT_ID, &s)
		if err == nil && s.Mask&unix.STATX_MNT_ID != 0 {
			break
		}
		if !errors.Is(err, unix.ENOENT) || at == filepath.Dir(at) {
			return byStat
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if device, ok := deviceOfMount(string(mounts), s.Mnt_id); err == nil && ok {
		return device
	}
	return byStat
}

// deviceOfMount is the number of the device of the mount with the ID, by a mountinfo file (proc_pid_mountinfo(5)).
func deviceOfMount(mounts string, id uint64) (device uint64, ok bool) {
	prefix := strconv.FormatUint(id, 10) + " "
	for line := range strings.Lines(mounts) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		var parent uint64
		var major, minor uint32
		_, err := fmt.Sscanf(line[len(prefix):], "%d %d:%d", &parent, &major, &minor)
		return unix.Mkdev(major, minor), err == nil
	}
	return 0, false
}
