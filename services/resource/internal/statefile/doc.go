// Package statefile reads and writes the state files of the kubelet's CPU manager, memory manager and device manager,
// so that a node goes over from a kubelet and back.
//
// # Guarantees
//
//   - A kubelet 1.36 accepts the files written, and files that it has written are read. The CPU manager's is written in
//     version 2 and read in 1 and 2; the memory manager's is of version 1. The versions of the alpha feature gate
//     PodLevelResourceManagers are refused.
//   - A file that is damaged, too large or of another kind is an error that is errUnusable and says what is wrong.
//     There is no content then: it is never read in part.
//   - A file that doesn't exist is fs.ErrNotExist.
//   - A file is replaced as a whole, and is on disk when the write returns (package atomicfile). The caller must not
//     write the same file twice at the same time, and makes the directory.
package statefile
