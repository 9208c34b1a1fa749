package stats

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReadMachineKnowsThisMachine(t *testing.T) {
	root := t.TempDir()
	m, err := readMachine(root)
	if err != nil {
		t.Logf("left out on this machine: %v", err)
	}
	if m.NumCores < 1 || m.MemoryBytes < 1<<20 || m.PIDLimit < 100 {
		t.Errorf("cores %d, memory %d, pids %d: want real figures", m.NumCores, m.MemoryBytes, m.PIDLimit)
	}
	if m.KernelVersion == "" || m.OSImage == "" || m.BootID == "" {
		t.Errorf("kernel %q, os %q, boot ID %q: want none empty", m.KernelVersion, m.OSImage, m.BootID)
	}
	if m.RootFS.CapacityBytes == 0 || m.RootFS.Path != root {
		t.Errorf("root filesystem %+v: want a size and the path %s", m.RootFS, root)
	}
}

func TestFilesystemOfADirectoryStillToBeMade(t *testing.T) {
	dir := t.TempDir()
	have, err := filesystem(filepath.Join(dir, "not", "yet"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := filesystem(dir)
	if err != nil {
		t.Fatal(err)
	}
	if have.CapacityBytes != want.CapacityBytes {
		t.Errorf("capacity %d, want the parent's %d", have.CapacityBytes, want.CapacityBytes)
	}
}

func TestFirstFileSkipsEmptyOnes(t *testing.T) {
	dir := t.TempDir()
	empty, full := filepath.Join(dir, "empty"), filepath.Join(dir, "full")
	for path, text := range map[string]string{empty: "\n", full: " id \n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := firstFile(filepath.Join(dir, "absent"), empty, full); err != nil || text != "id" {
		t.Errorf("%q, %v; want id", text, err)
	}
	if _, err := firstFile(empty); err == nil {
		t.Error("an empty file counted as an identifier")
	}
}
