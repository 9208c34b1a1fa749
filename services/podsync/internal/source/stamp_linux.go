package source

import (
	"io/fs"
	"syscall"
)

// stampOf identifies the file and its state. The inode distinguishes a file that was moved into place from its
// forerunner of the same size and time.
func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.ino = int64(st.Ino)
	}
	return s
}
