// Package why answers "why is my pod not running?" (or not gone), and "why is my node not ready?", from what is on the
// bus.
//
// # Reads
//
// pod.sources, pod.update, pod.status, status.patch, pleg.event, probe.result, volume.state, pod.allocation,
// node.runtime, node.object, node.pressure, node.shutdown, health, and the history of podsync.step, event and
// gc.decision. For an earlier time, the history of all of these but health.
//
// # Guarantees
//
//   - Explain and ExplainNode are pure. They name every cause that they see, the most fundamental first. They don't
//     name what only follows from another cause.
//   - Each cause is a sentence for a person, with what was reported beside it. A text that no rule knows is shown as
//     it is.
//   - For a pod that has left the node Explain uses the history, as long as the bus keeps it.
//   - Texts of containers, runtimes and registries are shown on one line each and can't move the cursor. A long text is
//     shown once.
//   - Nothing is written anywhere.
package why
