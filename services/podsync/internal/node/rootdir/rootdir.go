// Package rootdir makes the node's directories that others than podsync expect to find: plug-ins register in some of
// them, and tools for backups and debugging look into others.
package rootdir

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// modes are the directories below the root directory with the kubelet's modes for new ones.
var modes = []struct {
	name string
	mode os.FileMode
}{
	{"pods", 0o750},
	{"plugins", 0o750},
	{"plugins_registry", 0o750},
	{"device-plugins", 0o750},
	{"pod-resources", 0o750},
	{"checkpoints", 0o700},
}

// pluginsLabel is the SELinux label of the directories of plug-ins, the kubelet's: with it containers that aren't
// privileged may make their sockets there.
const pluginsLabel = "system_u:object_r:container_file_t:s0"

// Make makes the directories that aren't there. As with the kubelet, one that is there keeps its mode: an administrator
// or a package may have chosen it. Where the node has SELinux those of plug-ins are labelled; privileged plug-ins don't
// need that, so a failure is a warning.
func Make(root, podLogs string, log *slog.Logger) error {
	errs := []error{os.MkdirAll(root, 0o750), os.MkdirAll(podLogs, 0o750)}
	for _, d := range modes {
		errs = append(errs, os.MkdirAll(filepath.Join(root, d.name), d.mode))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("make the node's directories: %w", err)
	}
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
		return nil //nolint:nilerr // the node has no SELinux
	}
	if err := label(root, setLabel); err != nil {
		log.Warn("plug-ins in containers that aren't privileged may not work", "error", err)
	}
	return nil
}

// label labels the directories of plug-ins.
func label(root string, set func(path, label string) error) error {
	var errs []error
	for _, name := range []string{"plugins_registry", "plugins", "device-plugins"} {
		path := filepath.Join(root, name)
		if err := set(path, pluginsLabel); err != nil {
			errs = append(errs, fmt.Errorf("set the SELinux label of %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

func setLabel(path, label string) error {
	return unix.Setxattr(path, "security.selinux", []byte(label), 0)
}
