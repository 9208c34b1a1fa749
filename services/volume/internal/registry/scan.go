package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// maxEntries bounds what is looked at in the directory and below.
const maxEntries = 8192

// file is the socket of a plugin.
type file struct {
	path string
	// instance distinguishes it from an earlier file at the same path.
	instance string
	made     time.Time
}

// scanned is what the directory has.
type scanned struct {
	sockets []file
	// dirs are the directory and all below, to be watched.
	dirs []string
	// strange are files that are no sockets.
	strange []string
}

var errTooMany = fmt.Errorf("it has more than %d entries, the rest is ignored: remove what no plugin uses", maxEntries)

// scan looks for sockets in dir and below. It follows no links, and passes over names that begin with a dot. What it
// has found by then comes with an error too.
func scan(dir string) (s scanned, err error) {
	count := 0
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != dir:
			return nil // gone meanwhile
		case err != nil:
			return err
		case path != dir && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if count++; count > maxEntries {
			return errTooMany
		}
		return s.add(path, entry)
	})
	if err != nil {
		return s, fmt.Errorf("look for plugins in %s: %w", dir, err)
	}
	return s, nil
}

func (s *scanned) add(path string, entry fs.DirEntry) error {
	switch {
	case entry.IsDir():
		s.dirs = append(s.dirs, path)
	case entry.Type()&fs.ModeSocket == 0:
		s.strange = append(s.strange, path)
	default:
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		s.sockets = append(s.sockets, file{path, instanceOf(info), info.ModTime()})
	}
	return nil
}

// instanceOf is the inode and the time at which the socket was made: nobody writes into it.
func instanceOf(info fs.FileInfo) string {
	var inode uint64
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = stat.Ino
	}
	return fmt.Sprintf("%d.%d", inode, info.ModTime().UnixNano())
}
