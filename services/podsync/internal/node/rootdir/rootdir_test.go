package rootdir

import (
	"io/fs"
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
		if err := Make(root, logs); err != nil {
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
	err := Make(filepath.Join(dir, "file"), logs)
	if err == nil || !strings.Contains(err.Error(), "make the node's directories") {
		t.Errorf("a file in the place of the directory: %v", err)
	}
}
