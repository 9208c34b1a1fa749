// Package pleg (pod lifecycle event generator) reports what really runs. It reads the container runtime, and publishes
// each pod as a whole whenever the runtime's view of it changes. It also publishes the runtime's own health.
//
// # Reads
//
// The container runtime (CRI): event stream, lists, statuses, version, configuration, images. It changes nothing
// there. At start it reads its own retained pleg.event, to remove pods that went away while no pleg ran.
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
//   - An event of the runtime only wakes pleg: it reads the whole pod again, and publishes the reading, a few
//     milliseconds after the event. After a creation or a deletion it waits a moment for what follows.
//   - No pod is read twice at the same time. A pod that changes while it is read is read again.
//   - The runtime's lists are the truth. They are compared every minute while the event stream is open, every second
//     without it (CRI-O needs enable_pod_events for it) and with containerd 1.x, whose streams take events from each
//     other, and at once when the stream opens or breaks. So what no event has reported is found, too.
//   - A container or sandbox that can't be inspected is named in its pod's Errors and tried again; no other pod waits
//     for it.
//   - A runtime that is away or hangs makes node.runtime unreachable within seconds, never an empty pod.
//
// What is where: diff.go says what changed between two observations, tracker.go decides what to read next,
// both without I/O or clock; pleg.go is the loop around them, stream.go and node.go read events and health.
package pleg
