// Package persistent mounts what is behind the claims of pods: persistent volumes that need no driver, which are
// local, hostPath, NFS, iSCSI and fibre channel ones, and those of CSI drivers through them. Volumes of clouds are
// drivers' too (migrated.go).
//
// A pod's volume names a claim (or stands for one of its own, KEP-1698), the claim is bound to a persistent volume, and
// that one says where the data is: claim.go finds it, check.go decides whether the pod may have it, filesystem.go
// mounts directories and disks, block.go hands out disks as they are (KEP-351), remote.go and remoteblock.go do both
// for disks of the network (network.go has their kinds). grow.go has volumes grow with their claims.
//
// # Reads
//
// Claims and persistent volumes at the API server, once for each mount: a node may not watch them. What an earlier
// mount gave and is still in place needs no API server; of volumes that can grow the claims are read now and then.
//
// # Writes
//
// The status of claims whose volumes grow. All paths are the kubelet's, so that each takes over from the other:
//
//	pods/<uid>/volumes/kubernetes.io~local-volume/<volume>             what the pod sees, a bind mount
//	plugins/kubernetes.io/local-volume/mounts/<volume>                 a disk with a filesystem, mounted once for all pods
//	pods/<uid>/volumeDevices/kubernetes.io~local-volume/<volume>       a link to a disk
//	plugins/kubernetes.io~local-volume/volumeDevices/<volume>/<uid>    a bind mount of it, which a loop device holds open
//	pods/<uid>/volumes/kubernetes.io~iscsi, volumeDevices/kubernetes.io~iscsi   the same for disks of iSCSI targets
//	pods/<uid>/volumes/kubernetes.io~fc, volumeDevices/kubernetes.io~fc         and for those of fibre channel
//
// # Owns
//
// These paths. The data never: nothing below a mount point is removed, and a directory only when it is empty.
//
// # Guarantees
//
//   - What is on disk decides: the entry below the pod's directory is made first and removed last, so whatever was
//     interrupted is found again there.
//   - A volume that is mounted is complete: its filesystem was checked, and its files belong to the fsGroup.
//   - A disk stays mounted while one pod uses it, and no longer.
package persistent
