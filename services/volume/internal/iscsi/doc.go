// Package iscsi attaches disks of iSCSI targets to the node and takes them away again, by iscsiadm of open-iscsi.
//
// disk.go says what a disk is and how it is named, sysfs.go is what the kernel shows of it, admin.go has the calls of
// iscsiadm, attach.go and detach.go their order.
//
// # Reads
//
// /sys and /dev/disk/by-path.
//
// # Writes
//
// iscsi.json in the disk's global directory, in the kubelet's form: each takes over from the other. There is a copy
// beside the directory, since what is mounted hides the other. It has no secrets.
// The database of iscsiadm; the files of sysfs that look for a disk and that take it away.
//
// # Owns
//
//	plugins/kubernetes.io/iscsi/iface-<interface>/<portal>-<target>-lun-<n>                where a disk is mounted
//	plugins/kubernetes.io/iscsi/volumeDevices/iface-<interface>/<portal>-<target>-lun-<n>  where pods have it as a device
//
// # Guarantees
//
//   - A disk is on record before anybody logs in for it, so that whatever was interrupted is found and taken back.
//   - Only the disk that is wanted is looked for on the target.
//   - A session ends after the last disk that needs it, and no earlier, also where disks share some portals only.
//   - A target that doesn't answer holds up its own disks only: iscsiadm is a process of its own, with a limit of time.
//   - Names and passwords of CHAP are in no error, log or file of this package.
package iscsi
