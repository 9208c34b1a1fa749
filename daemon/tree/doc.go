// Package tree removes directory trees that containers can write to.
//
// # Reads
//
// The tree.
//
// # Writes
//
// The tree.
//
// # Owns
//
// Nothing: the caller says which directories are its own.
//
// # Guarantees
//
//   - No symbolic link is followed below the parent of the path, and no mount point is crossed, not even one that
//     appears during the removal: what is mounted there belongs to somebody else.
//   - A tree with a mount point in it is left as it is: all of it is looked at before the first removal. Two mount
//     points are found only when the removal reaches them: one that appears after the look, and one that is more than
//     64 levels deep. The removal stops there.
//   - A tree of any depth is removed with a bounded number of descriptors, and without a path that is too long.
//   - A file that disappears meanwhile is no error. Remove may be repeated after a failure.
//
// os.Root is not enough here: its RemoveAll stays below the root, but it empties what is mounted there. This package
// uses openat2 (Linux 5.6), which refuses mount points too.
package tree
