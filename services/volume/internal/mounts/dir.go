package mounts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kubelot.dev/daemon/tree"
)

// parentMode is the mode of the directories above a volume, as the kubelet has it: containers
// see only what is mounted into them.
const parentMode = 0o750

// stagingPrefix marks a directory that isn't complete yet. No volume name begins with a dot.
const stagingPrefix = ".new-"

// EnsureDir makes the directory dir with that mode (setuid, setgid and sticky bits included) and group, unless
// it exists: then it is left as it is, for its owner may have changed it. It reports whether it made it.
func EnsureDir(ctx context.Context, dir string, mode fs.FileMode, gid *int64) (made bool, err error) {
	info, err := os.Lstat(dir)
	switch {
	case err == nil && info.IsDir():
		return false, nil
	case err == nil:
		return false, fmt.Errorf("%s is in the way: it is not a directory", dir)
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), parentMode); err != nil {
		return false, err
	}
	staging := filepath.Join(filepath.Dir(dir), stagingPrefix+filepath.Base(dir))
	if err := tree.Remove(ctx, staging); err != nil {
		return false, err
	}
	if err := os.Mkdir(staging, 0o700); err != nil {
		return false, err
	}
	if gid != nil {
		if err := os.Lchown(staging, -1, int(*gid)); err != nil {
			return false, err
		}
	}
	if err := os.Chmod(staging, mode); err != nil {
		return false, err
	}
	return true, os.Rename(staging, dir)
}

// Names are the entries of a directory; none where it doesn't exist.
func Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
