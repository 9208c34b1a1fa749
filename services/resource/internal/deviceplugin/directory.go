package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// socketName is that of the registration service. Plugins have it built in.
	socketName = "kubelet.sock"
	// maxSocketPath is the kernel's limit of the path of a unix socket.
	maxSocketPath = 107
)

// prepare makes the directory ready, and removes the sockets in it: plugins that see theirs vanish register again.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the directory of device plugins: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for sockets of device plugins: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := os.Stat(path)
		if err != nil || info.Mode()&fs.ModeSocket == 0 {
			continue // a link to nowhere is no socket either
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the sockets of an earlier run: %w", err)
	}
	return nil
}
