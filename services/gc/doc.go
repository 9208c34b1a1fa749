// Package gc is the place of the daemon that reclaims what pods leave on a node and evicts pods under
// pressure. It holds the daemon's contract so far; podsync removes the sandboxes, containers and logs of pods that are
// deleted, and keeps the two newest dead containers of each name.
//
// # Reads
//
// pod.update and pod.sources (what should run), pleg.event (what runs), node.usage.
//
// # Writes
//
// node.pressure: the eviction signals that are over their threshold.
//
// # Owns
//
// Dead containers, images, rotated logs, and the decision to evict.
//
// # Guarantees
//
// With sources not ready or podsync's state missing it deletes nothing.
package gc
