package rootdir

import (
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	dir := t.TempDir()
	root, logs := filepath.Join(dir, "kubelet"), filepath.Join(dir, "log", "pods")
	if err := os.MkdirAll(filepath.Join(root, "plugins"), 0o711); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Make(root, logs, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]fs.FileMode{
		root: 0o711, root + "/plugins": 0o711, // they were there
		logs: 0o750, root + "/pods": 0o750, root + "/plugins_registry": 0o750, root + "/pod-resources": 0o750,
		root + "/checkpoints": 0o700,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, info, err, want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Make(filepath.Join(dir, "file"), logs, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "make the node's directories") {
		t.Errorf("a file in the place of the directory: %v", err)
	}
}

// The directories of plug-ins get the kubelet's SELinux label, also where one of them can't.
func TestLabels(t *testing.T) {
	labels := map[string]string{}
	err := label("/root", func(path, label string) error {
		labels[path] = label
		return errors.New("no room for " + filepath.Base(path))
	})
	const want = "system_u:object_r:container_file_t:s0"
	if !maps.Equal(labels, map[string]string{
		"/root/plugins": want, "/root/plugins_registry": want, "/root/device-plugins": want,
	}) {
		t.Errorf("labels %v", labels)
	}
	for _, part := range []string{"/root/plugins: no room for plugins", "/root/plugins_registry: no room"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v; want %q", err, part)
		}
	}
}
