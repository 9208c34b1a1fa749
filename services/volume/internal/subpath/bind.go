package subpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/tree"
	"kubelot.dev/services/volume/internal/mounts"
)

// dirName is the directory of a pod's subPath mounts, as the kubelet has it.
const dirName = "volume-subpaths"

// Mount is one mount of a container with a subPath.
type Mount struct {
	// PodDir is the pod's directory, Volume the volume's name and VolumePath where it is on the host.
	PodDir, Volume, VolumePath string
	Container                  string
	// Index is the mount's position in the container's volumeMounts.
	Index int
	// SubPath is the path in the volume.
	SubPath string
	// Inherit is true where directories that are made belong to the owner of the volume's root, and not to root.
	Inherit bool
}

// Bind makes the subPath appear on the host and returns where. Missing directories are created. The error says
// what is wrong with the subPath, and can be shown to the pod's owner.
func Bind(ctx context.Context, m Mount) (string, error) {
	if err := check(m.SubPath); err != nil {
		return "", err
	}
	for _, name := range []string{m.Volume, m.Container} {
		if name != filepath.Base(name) || name == "." || name == ".." {
			return "", fmt.Errorf("%q is not a valid name", name)
		}
	}
	root, err := unix.Open(m.VolumePath, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", reason(fmt.Errorf("%w: %w", fs.ErrNotExist, err))
	}
	defer func() { _ = unix.Close(root) }()
	fd, err := openOrCreate(root, filepath.Clean(m.SubPath), m.Inherit)
	if errors.Is(err, errEscapes) {
		fd, err = openAbsolute(root, m)
	}
	if err != nil {
		return "", reason(err)
	}
	defer func() { _ = unix.Close(fd) }()
	target := filepath.Join(m.PodDir, dirName, m.Volume, m.Container, strconv.Itoa(m.Index))
	if err := bind(ctx, fd, target); err != nil {
		return "", err
	}
	return target, nil
}

// bind shows fd at target.
func bind(ctx context.Context, fd int, target string) error {
	var want unix.Stat_t
	if err := unix.Fstat(fd, &want); err != nil {
		return err
	}
	shown, err := mounts.Mounted(target)
	if err != nil {
		return err
	}
	if shown {
		var have unix.Stat_t
		if err := unix.Lstat(target, &have); err == nil && have.Dev == want.Dev && have.Ino == want.Ino {
			return nil
		}
		// The file was replaced since the container's last start, such as by a ConfigMap's change.
		if err := mounts.UnmountBelow(target); err != nil {
			return err
		}
	}
	if err := ensureTarget(ctx, target, want.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return mounts.Bind(fd, target)
}

// ensureTarget makes the mount point: a directory for a directory, an empty file for anything else.
func ensureTarget(ctx context.Context, target string, dir bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	info, err := os.Lstat(target)
	if err == nil && info.IsDir() == dir && (dir || info.Mode().IsRegular()) {
		return nil
	}
	if err == nil {
		if err := tree.Remove(ctx, target); err != nil {
			return err
		}
	}
	if dir {
		return os.Mkdir(target, 0o750)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// Clean unmounts and removes what Bind made for a volume of the pod; for volume "" of all its volumes.
func Clean(ctx context.Context, podDir, volume string) error {
	dir := filepath.Join(podDir, dirName)
	if volume != "" {
		dir = filepath.Join(dir, volume)
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := mounts.UnmountBelow(dir); err != nil {
		return err
	}
	return mounts.Release(ctx, dir)
}
