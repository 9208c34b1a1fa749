// Package cli is kubelot's command line: run the crew in the foreground, watch the bus, list pods,
// remove them.
//
// # Reads
//
// Every topic of the bus, with the key <run-dir>/keys/cli.nk.
//
// # Writes
//
// Nothing on the bus. `kubelot down` removes pods from the container runtime and from the disk.
//
// # Owns
//
// The child processes of `kubelot up`.
//
// # Guarantees
//
//   - Looking never changes anything.
//   - Secret material is hidden unless root asks for it.
package cli
