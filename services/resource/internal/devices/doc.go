// Package devices is the book of the node's devices: which there are, and which container has which.
//
// book.go has the resources and what the Node says of them, needs.go what a pod wants, pick.go the choice of devices
// for a container, reservation.go their way from reserved to assigned, as their plugins prefer, assigned.go what
// containers have, hints.go the NUMA nodes from which a container can get what it wants, checkpoint.go what is kept
// over a restart. It follows the kubelet's device manager.
//
// # A pod's way
//
// Needs says what its containers want. Waiting says whether a plugin that was there before is still to come back.
// Hints gives the NUMA nodes to choose from, and a Reservation keeps devices, for all of its containers and resources
// before the first plugin is asked. Then for one after the other: Offer gives the devices among which the plugin may
// say what it prefers, Prefer chooses, the plugin is told, and Confirm or Drop ends it. Pods that run already, as
// after a restart of the daemon, have what Adopt has read and aren't picked for again. Release gives everything back.
// Those that were adopted as stale are picked for again, and get the same. Until their plugin has answered they have
// it as before: a restart at any point changes nothing of it.
//
// # Guarantees
//
//   - The book does no I/O and has no clock and no goroutines. It belongs to one goroutine. The same calls have the
//     same results.
//   - A device is assigned to one pod at a time. Containers of a pod share it only where the kubelet has them reuse it:
//     after a plain init container.
//   - Devices that are kept for a container while its plugin is asked are nobody else's.
//   - What a refusal says is what the kubelet says.
//
// # Where it differs from the kubelet
//
//   - A device that its plugin lists no longer is unhealthy in the status of the pods that have it.
//   - Only healthy devices of init containers are reused.
//   - A container that wants 0 devices of a resource is not refused because that resource has no healthy ones.
//   - NUMA nodes that the machine hasn't are no nodes: a resource whose devices have no others has no preference. Nor
//     has one with devices on more than 16 nodes, where the kubelet would go through all sets of them.
package devices
