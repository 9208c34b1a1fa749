// Package fc finds disks of fibre channel fabrics on the node, and takes them away again.
//
// The fabric brings them: nobody logs in anywhere. The kernel looks for them when it is told to, and shows each by the
// ways to it (the world wide names of targets and a LUN) and by what the disk calls itself (its world wide identifier).
//
// # Reads
//
// /sys, /dev/disk/by-path and /dev/disk/by-id.
//
// # Writes
//
// A record of the disk beside its global directory, which a kubelet doesn't have and doesn't need; the files of sysfs
// that look for disks and that take them away.
//
// # Owns
//
//	plugins/kubernetes.io/fc/<name>-lun-<n>, or <identifier>     where a disk is mounted
//	plugins/kubernetes.io/fc/volumeDevices/..., the same names   where pods have it as a device
//
// # Guarantees
//
//   - A disk is on record before it is used, so that whatever was interrupted is found and taken back.
//   - A disk that pods have both ways is taken away after the last of them.
package fc
