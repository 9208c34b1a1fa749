// Package cli is kubelot's command line: run the crew in the foreground, watch the bus, list pods, remove them, and
// look at the node's configuration.
//
// # Reads
//
// Every topic of the bus, with the key <run-dir>/keys/cli.nk.
//
// # Writes
//
// Nothing on the bus. `kubelot down` removes pods from the container runtime and from the disk. `kubelot restart` has
// the runtime stop a container, and `kubelot image` has it pull, import and pin images. `kubelot apply` and
// `kubelot delete` write and remove their own manifests in the directory of static pods. `kubelot tap --record` and
// `kubelot bundle` write new files, without secrets.
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
