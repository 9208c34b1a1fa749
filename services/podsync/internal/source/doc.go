// Package source is podsync's eyes: the API server, the manifest directory and the manifest URL, each of
// which delivers whole sets of pods, and the Merge of their last sets.
//
// # Reads
//
// The pods of this node at the API server, the files of staticPodPath, the document at staticPodURL.
//
// # Writes
//
// Nothing.
//
// # Guarantees
//
//   - A set is complete. A source that can't be read says so, and its last set stays in force.
//   - A manifest that can't be used is told once per change, and hurts no other. If it could be used before, its pod
//     stays as it was.
//   - A manifest is read when its writer has closed it or moved it into place. (This is why inotify is used as
//     such: package fsnotify doesn't tell of a close.) Where the kernel tells nothing, as on a network filesystem,
//     it is read once it has rested.
//   - The same pod is the same pointer from set to set as long as nothing about it changes.
package source
