// Package atomicfile replaces files as a whole. It is written by hand because google/renameio always syncs the file,
// never the directory, and leaves files of random names behind (docs/adr/0024).
//
// # Guarantees
//
//   - A reader sees either the old content or all of the new content, also after the process was killed.
//   - An unfinished file has the file's name with Suffix. It is removed when a write fails. A process that is killed
//     leaves at most one such file for each file, and the next write of that file replaces it.
//   - The file has exactly the mode that is asked for, whatever the umask, from the moment it has its name. A link at
//     its place is replaced, not followed.
//   - The directory must exist. The caller must not write the same file twice at the same time.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Suffix is what the names of unfinished files end in.
const Suffix = ".tmp"

// Write replaces the file. If the machine loses its power, the old content may be back.
func Write(path string, data []byte, mode fs.FileMode) error { return write(path, data, mode, nothing) }

// WriteDurably replaces the file, and returns when it is on the disk.
func WriteDurably(path string, data []byte, mode fs.FileMode) error {
	if err := write(path, data, mode, (*os.File).Sync); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func nothing(*os.File) error { return nil }

func write(path string, data []byte, mode fs.FileMode, sync func(*os.File) error) error {
	unfinished := path + Suffix
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), sync(f), f.Close()); err == nil {
		err = os.Rename(unfinished, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(unfinished))
	}
	return nil
}
