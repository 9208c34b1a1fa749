// Package volume is kubelot-volume: it makes the volumes of pods usable before their containers start, keeps
// the files of ConfigMaps, Secrets, tokens and the downward API up to date, and removes everything when a
// pod has terminated.
//
// How it works: volume.go is the one goroutine that owns the state; book.go and decide.go are the state and
// the pure decisions on it; work.go is what workers do, a goroutine per volume; report.go is what is
// published. The kinds of volumes are in internal/plugin, what is behind claims is in internal/persistent.
//
// # Reads
//
// pod.update, pod.sources, node.object (allocatable resources, for limits that containers don't have, and labels); once
// after the start pleg.event and node.runtime, so that nothing is removed below a running container, and its own
// volume.state, so that what is mounted needs no API server. From the API server ConfigMaps, Secrets, tokens of service
// accounts, claims and persistent volumes.
//
// # Writes
//
// volume.state; Events FailedMount, FailedMapVolume, and those about the group of a volume's files.
//
// # Owns
//
// In <root-dir>/pods/<uid> volumes, volumeDevices and volume-subpaths, with what is mounted there; the disks of local
// volumes below <root-dir>/plugins.
//
// # Guarantees
//
//   - Volumes are set up while a pod is syncing, stay while it is terminating, and go when it has terminated.
//   - Each volume has a worker of its own: one that hangs holds up nothing but its pod. A system call that never
//     returns can't be cancelled; the volume's message says so, and everything else goes on.
//   - A change of a ConfigMap or Secret is in the files as soon as the watch reports it. A missing object that
//     appears ends the wait at once; other failures are tried again after 500 ms, doubling up to 2m2s.
//   - Everything may be killed at any time: what is on disk is adopted. Only pods that every source has
//     disowned, and of which no container runs, are cleaned up without a pod.update.
//   - Work that gets on, such as giving many files to a group, is never cut off.
//   - Nothing is deleted through a mount point, and nothing of a persistent volume is ever deleted.
package volume
