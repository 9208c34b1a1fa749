// Package subpath makes one file or directory of a volume appear at a path of its own, so that a container
// gets that and nothing else of the volume.
//
// # Reads
//
// The volume, which containers may change at the same time.
//
// # Writes
//
// <pod>/volume-subpaths/<volume>/<container>/<index>, and missing directories inside the volume.
//
// # Owns
//
// <pod>/volume-subpaths.
//
// # Guarantees
//
//   - What is bound lies inside the volume, whatever a container does meanwhile: the kernel resolves the
//     path once, below the volume's root (openat2 with RESOLVE_BENEATH), and what was opened is bound by
//     its descriptor, not by its path. Symbolic links that stay inside the volume are followed.
//   - Binding again is harmless: a target that already shows the same file is kept, another is replaced.
//   - Errors tell nothing about the host's files outside the volume.
package subpath
