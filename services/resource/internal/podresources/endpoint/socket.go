package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

const (
	// dirMode and socketMode are the kubelet's, the latter under the usual umask. A client must be root, since it needs
	// the permission to write.
	dirMode    = 0o750
	socketMode = 0o755
	// maxPath is the kernel's limit of the path of a unix socket.
	maxPath = 107
	// suffix is that of a socket which isn't in its place yet.
	suffix = ".new"
)

// socket is the file of a unix socket on which this process listens.
type socket struct {
	path string
	own  fs.FileInfo
}

// listen makes the socket in place of an earlier one, and its directory if there is none.
func listen(ctx context.Context, path string) (*net.UnixListener, *socket, error) {
	fresh := path + suffix
	if len(fresh) > maxPath {
		return nil, nil, fmt.Errorf("the path has %d characters, and at most %d are possible: use a shorter root directory",
			len(path), maxPath-len(suffix))
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, nil, err
	}
	for _, p := range []string{path, fresh} {
		if err := replaceable(p); err != nil {
			return nil, nil, err
		}
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("remove the unfinished socket of an earlier run: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, nil, err
	}
	// The file gets another name, and may be another process's at the end.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	s := &socket{path: path}
	if err := s.place(fresh); err != nil {
		return nil, nil, errors.Join(err, listener.Close(), os.Remove(fresh))
	}
	return listener.(*net.UnixListener), s, nil
}

// makeDir makes the directory if it isn't there. One that is there keeps its mode.
func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), dirMode); err != nil {
		return err
	}
	switch err := os.Mkdir(dir, dirMode); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return os.Chmod(dir, dirMode)
}

// replaceable reports as an error what must not be replaced by the socket.
func replaceable(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() == fs.ModeSocket:
		return nil
	case info.IsDir():
		return fmt.Errorf("%s is a directory, such as a hostPath volume makes: remove it, and mount its parent", path)
	}
	return fmt.Errorf("%s isn't a socket: remove it", path)
}

// place gives the socket its mode and its name.
func (s *socket) place(fresh string) (err error) {
	if err := os.Chmod(fresh, socketMode); err != nil {
		return err
	}
	if s.own, err = os.Lstat(fresh); err != nil {
		return err
	}
	return os.Rename(fresh, s.path)
}

// remove removes the socket, but not that of another process. It must come before the socket is closed: until then no
// other file can have its inode.
func (s *socket) remove() error {
	now, err := os.Lstat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, s.own):
		return nil
	case err != nil:
		return err
	}
	return os.Remove(s.path)
}
