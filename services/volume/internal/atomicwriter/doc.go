// Package atomicwriter writes a set of files into a volume so that readers see all of the old ones or all of
// the new ones, in the layout that the kubelet's volumes have and that programs watch with inotify:
//
//	<volume>/..2026_01_02_15_04_05.123456789/a/b   the files
//	<volume>/..data -> ..2026_01_02_15_04_05.123456789
//	<volume>/a -> ..data/a
//
// # Reads and writes
//
// The directory it is given, which it never leaves (os.Root).
//
// # Owns
//
// Every name in the directory that begins with "..", and the symbolic links that point below ..data.
// Other entries, such as mount points of nested volumes, are left alone.
//
// # Guarantees
//
//   - Replacing ..data is one rename. Modes, owner and group are set before it.
//   - Nothing is written when content, modes, owners and names are the same already.
//   - A write that was interrupted at any point is completed or cleaned up by the next one.
//   - Paths that are absolute, or have a component "..", or begin with "..", are refused.
package atomicwriter
