// Package why answers "why is my pod not running?" (or not gone) from what is on the bus.
//
// # Reads
//
// pod.sources, pod.update, status.patch, pleg.event, probe.result, volume.state, node.runtime, health, and the history of
// podsync.step and event.
//
// # Guarantees
//
//   - Explain is pure. It names every cause it sees, the most fundamental first, and nothing that only follows from one named already.
//   - A pod that has left the node is answered from the history, as long as the bus keeps it.
//   - What containers, runtimes and registries said is shown on one line each and can't move the cursor.
package why
