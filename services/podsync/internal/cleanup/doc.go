// Package cleanup removes what pods that are gone left on disk, and never more than that.
//
// # Reads and writes
//
// <RootDir>/pods, <PodLogsDir> and the directory of the links to container logs.
//
// # Guarantees
//
//   - What is mounted is never entered: a directory with a mount below it is refused as a whole, and the error
//     names the mount.
//   - Symbolic links are removed, never followed, even if they are swapped in meanwhile.
//   - Names that aren't a single path element name nothing.
package cleanup
