package measure

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// Files is what is below a directory.
type Files struct {
	Count int64 `json:"count"` // files and directories
	// Bytes are those of the pages or blocks that the files occupy.
	Bytes int64 `json:"bytes"`
}

// blockSize is the unit of stat(2)'s block counts, whatever the file system's is.
const blockSize = 512

// Count walks the directory, which changes meanwhile.
func Count(dir string) (Files, error) {
	var files Files
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return gone(err)
		}
		info, err := entry.Info()
		if err != nil {
			return gone(err)
		}
		files.Count++
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			files.Bytes += stat.Blocks * blockSize
		}
		return nil
	})
	if err != nil {
		return files, fmt.Errorf("count the files in %s: %w", dir, err)
	}
	return files, nil
}

// gone passes what isn't a file that went away.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
