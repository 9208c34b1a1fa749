package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrMounted is in the error of what met a mount point. The whole error names it: "/a/b is still mounted".
var ErrMounted = errors.New("is still mounted")

// Beneath makes openat2 refuse symbolic links, mount points and ways out of the directory. The error for a mount point
// is unix.EXDEV.
const Beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// OpenDir opens the directory path below dir. It fails with ErrMounted at a mount point, and with unix.ENOTDIR or
// unix.ELOOP for what is no directory. A path longer than the kernel's limit can't be opened.
func OpenDir(dir *os.File, path string) (*os.File, error) {
	fd, err := unix.Openat2(int(dir.Fd()), path, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: Beneath,
	})
	switch {
	case errors.Is(err, unix.EXDEV):
		return nil, mounted(dir, path)
	case errors.Is(err, unix.ENOSYS):
		return nil, fmt.Errorf(
			"there is no openat2: kubelot needs Linux 5.6 or later, and a unit without RestrictSUIDSGID=: %w",
			pathError("open", dir, path, err),
		)
	case err != nil:
		return nil, pathError("open", dir, path, err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), path)), nil
}

func mounted(dir *os.File, name string) error {
	return fmt.Errorf("%s %w", filepath.Join(dir.Name(), name), ErrMounted)
}

func pathError(op string, dir *os.File, name string, err error) error {
	return &fs.PathError{Op: op, Path: filepath.Join(dir.Name(), name), Err: err}
}
