// Package orphans removes what pods that are gone left on disk, and never more than that.
//
// # Reads and writes
//
// <RootDir>/pods, <PodLogsDir>, the directory of the links to container logs, and through Cgroups the pods' cgroups.
//
// # Guarantees
//
//   - A mount is never entered: a directory with a mount below it is refused as a whole, and the error
//     names the mount.
//   - The record of a volume that a CSI driver has not taken back (vol_data.json) stays, and with it the directory of
//     its pod.
//   - Symbolic links are removed, never followed, even if they are swapped in meanwhile.
//   - Names that aren't a single path element name nothing.
package orphans
