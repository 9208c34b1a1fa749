package mounts

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kernel is the running kernel's release, such as 6.1.0-18-amd64; empty if it doesn't say.
func Kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// MapsTmpfs reports whether a kernel of that release can map the IDs of a tmpfs for a mount (MOUNT_ATTR_IDMAP), which
// runtimes ask of it for pods in user namespaces. Linux can since 6.3, and for filesystems on disks since 5.12 or 5.15.
// To try it out takes a user namespace, which the daemon's unit doesn't allow it to make. Distributions may have
// brought it to an older kernel: what is done for one that can't is right there, too. An unknown release counts as a
// newer one.
func MapsTmpfs(release string) bool { return atLeast(release, 6, 3) }

// MapsHugetlbfs is the same for huge pages.
func MapsHugetlbfs(release string) bool { return atLeast(release, 6, 9) }

// atLeast reports whether the release is of that version or a later one.
func atLeast(release string, major, minor int) bool {
	first, rest, _ := strings.Cut(release, ".")
	second := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(second)
	return errA != nil || errB != nil || a > major || a == major && b >= minor
}
