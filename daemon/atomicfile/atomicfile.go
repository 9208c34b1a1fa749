// Package atomicfile replaces files as a whole.
//
// # Guarantees
//
//   - Who reads the file, also after the process was killed, sees what it was before or all of what was written.
//   - What isn't finished has the file's name with Suffix, and is gone when a write fails. A process that is killed leaves one such file
//     at most for each file, which the next write of that file replaces.
//   - The file has exactly the mode that is asked for, whatever the umask, from the moment it has its name. A link at its place is
//     replaced, not followed.
//   - The directory must exist. Two writes of the same file at a time are the caller's to prevent.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Suffix is what the names of unfinished files end in.
const Suffix = ".tmp"

// Write replaces the file. After the machine has lost its power it may be as it was before.
func Write(path string, data []byte, mode fs.FileMode) error { return write(path, data, mode, nothing) }

// WriteDurably replaces the file and returns when the disk has it.
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
