// Package source has the pod sources, which are the API server, the manifest directory and the manifest URL. Each of
// them delivers whole sets of pods; Merge joins their last sets.
//
// # Reads
//
// The pods of this node at the API server, the files of staticPodPath, the document at staticPodURL.
//
// # Writes
//
// Copies of the manifests that could be used, in a directory of its own.
//
// # Guarantees
//
//   - A set is complete. A source that can't be read says so, and its last set stays valid.
//   - A manifest that can't be used is reported once per change, and doesn't affect others. If it could be used before,
//     its pod stays as it was, also after a restart of the daemon (not of the machine).
//   - A manifest is read when its writer has closed it or moved it into place. (This is why inotify is used as
//     such: package fsnotify doesn't report a close.) Where the kernel reports nothing, as on a network filesystem,
//     it is read once it hasn't changed for a while.
//   - The same pod is the same pointer from set to set as long as nothing about it changes.
package source
