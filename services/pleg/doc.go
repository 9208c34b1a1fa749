// Package pleg (pod lifecycle event generator) tells what really runs: it reads the container runtime and
// publishes each pod as a whole, whenever the runtime's view of it changes, and the runtime's own health.
//
// # Reads
//
// The container runtime (CRI): event stream, lists, statuses, version, configuration, images. It changes nothing
// there. At start its own retained pleg.event, to remove pods that went while no pleg ran.
//
// # Writes
//
// pleg.event.<uid>: every sandbox and container of the pod; a tombstone once the runtime has nothing of it.
// node.runtime: the runtime's name, version, conditions, handlers, features and images.
//
// # Owns
//
// Nothing on disk, and no other daemon's state.
//
// # Guarantees
//
//   - An event of the runtime only wakes: the pod is read again, as a whole, and the reading is what is
//     published, a few milliseconds after the event. Creations and deletions wait a moment for what follows them.
//   - Never two readings of one pod at once; a pod that changes while it is read is read again.
//   - The lists are the truth: with the event stream open they are compared every minute, without it every
//     second, and at once when the stream opens or breaks. Whatever an event missed is found there.
//   - A container or sandbox that can't be inspected is named in its pod's Errors and tried again; no other pod waits for it.
//   - A runtime that is away or hangs makes node.runtime unreachable within seconds, never an empty pod.
//
// What is where: diff.go says what changed between two observations, tracker.go decides what to read next,
// both without I/O or clock; pleg.go is the loop around them, stream.go and node.go read events and health.
package pleg
