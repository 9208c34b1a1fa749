package bed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Clean ends and removes everything the bed in dir owns, also after its
// owner was killed, and the directory's contents with it. A directory that
// holds no bed is left alone.
func Clean(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, bedFile)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("clean test bed: %w", err)
	}
	b, err := Open(dir)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Reset(); err != nil {
		return err
	}
	if err := os.RemoveAll(b.Logs()); err != nil {
		return fmt.Errorf("clean test bed: %w", err)
	}
	return errors.Join(os.Remove(b.Path(bedFile)), os.Remove(b.Path(lockFile)))
}

// Reset clears the bed and removes its files except the logs, so that a new
// run starts with nothing and a past one can be understood.
func (b *Bed) Reset() error {
	if err := b.Clear(); err != nil {
		return err
	}
	return b.removeFiles()
}

// Clear ends the bed's processes and removes its mounts, cgroups, bridge and
// iptables rules. Files stay, except sockets and links outside the directory.
func (b *Bed) Clear() error {
	errs := []error{b.killAll()}
	// The shims' sockets are named in the bundles, which unmounting hides.
	b.removeShimSockets()
	errs = append(errs,
		b.uncover(),
		b.unmountAll(),
		b.removeCgroups(),
		b.removeBridge(),
		b.removeHostPorts(),
		b.removeContainerLogLinks(),
		b.removeCNICache(),
	)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clear test bed %s: %w", b.Dir, err)
	}
	return nil
}

// removeFiles empties the directory except for what makes it a bed. The mounts must be gone: a removal that
// follows a bind mount deletes what is on the other side.
func (b *Bed) removeFiles() error {
	points, err := b.mountPoints()
	if err != nil {
		return err
	}
	if len(points) > 0 {
		return fmt.Errorf("remove %s: still mounted: %s", b.Dir, strings.Join(points, ", "))
	}
	entries, err := os.ReadDir(b.Dir)
	if err != nil {
		return fmt.Errorf("remove test bed: %w", err)
	}
	for _, entry := range entries {
		if slices.Contains([]string{bedFile, lockFile, logDir}, entry.Name()) {
			continue
		}
		if err := os.RemoveAll(b.Path(entry.Name())); err != nil {
			return fmt.Errorf("remove test bed: %w", err)
		}
	}
	return nil
}

// Discard unmounts what is mounted in the named directories of the bed and
// removes them.
func (b *Bed) Discard(names ...string) error {
	points, err := b.mountPoints()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		dir := b.Path(name)
		for _, point := range points {
			if point == dir || strings.HasPrefix(point, dir+"/") {
				errs = append(errs, unmount(point))
			}
		}
	}
	// Removing what is still mounted would delete on the other side.
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, name := range names {
		errs = append(errs, os.RemoveAll(b.Path(name)))
	}
	return errors.Join(errs...)
}

func unmount(point string) error {
	err := syscall.Unmount(point, syscall.MNT_DETACH)
	if err != nil && !errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("unmount %s: %w", point, err)
	}
	return nil
}

// mountPoints lists the mounts under the bed's directory, latest first.
func (b *Bed) mountPoints() ([]string, error) {
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	var points []string
	for _, m := range all {
		if strings.HasPrefix(m.point, b.Dir+"/") {
			points = append(points, m.point)
		}
	}
	slices.Reverse(points)
	return points, nil
}

func (b *Bed) unmountAll() error {
	points, err := b.mountPoints()
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points {
		errs = append(errs, unmount(point))
	}
	return errors.Join(errs...)
}

// removeShimSockets removes the sockets that containerd's shims keep in
// /run/containerd/s, whatever the state directory: a killed shim leaves them.
func (b *Bed) removeShimSockets() {
	bundles := b.Path("containerd", "state", "io.containerd.runtime.v2.task", "*", "*")
	described, _ := filepath.Glob(filepath.Join(bundles, "bootstrap.json"))
	for _, file := range described {
		var boot struct {
			Address string `json:"address"`
		}
		if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &boot) == nil {
			removeSocket(boot.Address)
		}
	}
	addresses, _ := filepath.Glob(filepath.Join(bundles, "address")) // of containerd 1.6
	for _, file := range addresses {
		if data, err := os.ReadFile(file); err == nil {
			removeSocket(string(data))
		}
	}
}

func removeSocket(address string) {
	if socket, ok := strings.CutPrefix(address, "unix://"); ok {
		_ = os.Remove(socket)
	}
}

// removeContainerLogLinks removes the links in /var/log/containers, a path
// that is fixed in Kubernetes, that lead into the bed.
func (b *Bed) removeContainerLogLinks() error {
	const dir = "/var/log/containers"
	entries, _ := os.ReadDir(dir) // absent where no agent ever ran
	var errs []error
	for _, entry := range entries {
		link := filepath.Join(dir, entry.Name())
		target, err := os.Readlink(link)
		if err == nil && strings.HasPrefix(target, b.Dir+"/") {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

// removeCNICache removes the results that libcni keeps of pods whose network
// namespace was in the bed.
func (b *Bed) removeCNICache() error {
	files, err := filepath.Glob("/var/lib/cni/results/*")
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil && bytes.Contains(data, []byte(b.Dir+"/")) {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}
