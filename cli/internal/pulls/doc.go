// Package pulls reads how far the container runtime is with the images that it pulls.
//
// CRI doesn't tell that. containerd's own API does, on the same socket: its content service lists what is being
// fetched, with sizes. Another runtime, such as CRI-O, hasn't that service, and nothing is known of its pulls.
//
// # Reads
//
// containerd's content service in the namespace k8s.io: the fetches under way, the manifests that they belong to, and
// which of their layers are there. It is asked when a person asks, never by a daemon.
//
// # Guarantees
//
//   - Nothing is changed, and no lease or lock is taken.
//   - A layer that the runtime has unpacked before, for another image, isn't fetched again, and may have been removed
//     since: it counts as missing, so that a pull may end before all its bytes are there.
package pulls
