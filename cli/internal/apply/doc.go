// Package apply runs pods without an API server: it turns manifests into files of the node's directory of static pods,
// and waits for what becomes of them. podsync, which reads that directory, does the rest.
//
// # Reads
//
// The directory of static pods. pod.sources, pod.update, pod.status, status.patch, pleg.event.
//
// # Writes
//
// Files of that directory that it has written itself, each with a first line that says so.
//
// # Guarantees
//
//   - Documents, Plan, Removals, Ready and Gone are pure.
//   - Either all documents are fit for a change, or nothing is changed.
//   - A file that somebody else has written is neither changed nor removed, and no pod takes the name of another.
//   - podsync never sees a half-written manifest, also if the process is killed.
package apply
