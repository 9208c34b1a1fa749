// Package shutdown follows a shutdown of the node, and stops what is left of its pods when the system stops.
//
// # Reads
//
// node.shutdown; for Halt the container runtime; for Stopping systemd.
//
// # Writes
//
// For Halt the container runtime: containers are stopped, nothing is removed.
//
// # Guarantees
//
//   - Follow ends when nothing is waited for any more, and is an error if the shutdown was cancelled.
//   - Halt stops containers of pods only, side by side, and all of them even if some can't be stopped.
package shutdown
