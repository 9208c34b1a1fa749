// Package rootdir makes the node's directories that others than podsync expect to find: plug-ins register in some of
// them, and tools for backups and debugging look into others.
package rootdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// modes are the directories below the root directory with the kubelet's modes for new ones.
var modes = []struct {
	name string
	mode os.FileMode
}{
	{"pods", 0o750},
	{"plugins", 0o750},
	{"plugins_registry", 0o750},
	{"pod-resources", 0o750},
	{"checkpoints", 0o700},
}

// Make makes the directories that aren't there. As with the kubelet, one that is there keeps its mode: an administrator
// or a package may have chosen it.
func Make(root, podLogs string) error {
	errs := []error{os.MkdirAll(root, 0o750), os.MkdirAll(podLogs, 0o750)}
	for _, d := range modes {
		errs = append(errs, os.MkdirAll(filepath.Join(root, d.name), d.mode))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("make the node's directories: %w", err)
	}
	return nil
}
