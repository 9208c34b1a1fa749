// Package why answers "why is my pod not running?" (or not gone) from what is on the bus.
//
// # Reads
//
// pod.sources, pod.update, pod.status, status.patch, pleg.event, probe.result, volume.state, node.runtime, health, and
// the history of podsync.step and event.
//
// # Guarantees
//
//   - Explain is pure. It names every cause that it sees, the most fundamental first. It doesn't name what only follows
//     from another cause.
//   - For a pod that has left the node it uses the history, as long as the bus keeps it.
//   - Texts of containers, runtimes and registries are shown on one line each and can't move the cursor.
package why
