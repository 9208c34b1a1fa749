// Package mounts makes, mounts, unmounts and removes the directories of pod volumes.
//
// # Reads
//
// /proc/self/mountinfo, and only where something turned out to be mounted in an unexpected place.
//
// # Writes
//
// The directories it is given.
//
// # Owns
//
// Nothing: the caller says which directories are its own.
//
// # Guarantees
//
//   - A directory that exists under its final name is complete: mode and group were set before.
//   - Trees are removed by daemon/tree, which follows no symbolic link and crosses no mount point.
//   - Unmounting ends a mount in the place that the caller named, never in another that is bound there.
//   - Every function may be repeated after it failed half way, or after the process was killed.
package mounts
