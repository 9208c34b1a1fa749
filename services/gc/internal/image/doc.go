// Package image decides which images go, and remembers when each was seen and used.
//
// # Guarantees
//
//   - An image stays while a container in any state has it, while a pod that has not ended names it (in its containers
//     or its image volumes), while sandboxes have it, and while it is pinned. A full disk changes nothing about that.
//   - For space, images go in the order of their last use, those never used by their age. None goes that is younger
//     than imageMinimumGCAge.
//   - The records are kept in a file. Without it every image counts as new, which only delays its removal.
package image
