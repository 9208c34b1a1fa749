// Package volume is kubelot-volume: it sets up the volumes of pods before their containers start, keeps the files of
// ConfigMaps, Secrets, tokens and the downward API up to date, and removes everything when a pod has terminated.
//
// How it works: volume.go is the one goroutine that owns the state. state.go has the state, and decide.go the pure
// decisions on it (testdata has them as scenarios). handle.go looks only at pods of which something is new or due.
// work.go is what workers do, a goroutine per volume. report.go is what is published. The kinds of volumes are in
// internal/plugin, what is behind claims is in internal/persistent, what CSI drivers serve in internal/csi, with
// internal/driver, internal/attach and internal/tokens. Network volumes are in internal/nfs, internal/iscsi and
// internal/fc, which run programs by internal/program. What the growth of a claim means is in internal/growth.
// internal/registry finds drivers and other plugins; plugins.go wires it. internal/selinux has the labels of mounts.
//
// # Reads
//
// pod.update, pod.sources, node.object (allocatable resources, for limits that containers don't have, labels, and the
// volumes that are attached); once after the start pleg.event and node.runtime, so that nothing is removed below a
// running container, and its own volume.state, so that what is mounted needs no API server, and plugin.registered. From
// the API server ConfigMaps, Secrets, tokens of service accounts, claims, persistent volumes, CSIDrivers and
// VolumeAttachments. The sockets of plugins.
//
// # Writes
//
// volume.state, plugin.registered, csi.driver and csi.volumes. Events: FailedMount, FailedMapVolume, those about the
// group of a volume's files, those about its growth, VolumeAttachmentLimitExceeded, and of the Node
// PossibleMemoryBackedVolumesOnDisk. The status of claims, as far as the growth of their volumes goes.
//
// # Calls and serves
//
// It serves volume.subpath and volume.usage, and asks podsync (pod.evict) to reject a pod whose volumes can't be
// attached because the node can have no more.
//
// # Owns
//
// In <root-dir>/pods/<uid> volumes, volumeDevices and volume-subpaths, with what is mounted there; the disks of local
// volumes and those of the network, and the volumes of CSI drivers, below <root-dir>/plugins;
// <root-dir>/plugins_registry.
//
// # Guarantees
//
//   - Volumes are set up while a pod is syncing, stay while it is terminating, and are removed when it has terminated.
//   - Each volume has a worker of its own, so a volume that hangs delays only its pod. A system call that never returns
//     can't be cancelled. The volume's message says so, and everything else goes on.
//   - A change of a ConfigMap or Secret is written to the files as soon as the watch reports it. When a missing object
//     appears, its volume is set up at once. Other failures are retried after 500 ms, doubling up to 2m2s.
//   - The daemon may be killed at any time. The next process adopts what is on disk. Without a pod.update it removes a
//     pod's volumes only if every source has delivered without the pod, and none of its containers runs.
//   - Work that makes progress, such as giving many files to a group, is never interrupted.
//   - Nothing is deleted through a mount point, and nothing of a persistent volume is ever deleted.
package volume
