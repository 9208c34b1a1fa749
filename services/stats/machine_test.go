package stats

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/cadvisor/lib/utils/sysfs"
)

func TestReadMachineKnowsThisMachine(t *testing.T) {
	root := t.TempDir()
	m, err := machineOf(root)()
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

// The Node's capacity follows from the facts: without one, pods would be refused for good.
func TestAFactThatCannotBeReadKeepsItsValue(t *testing.T) {
	at := t.TempDir()
	root := filepath.Join(at, "root")
	read := machineOf(filepath.Join(root, "below"))
	before, _ := read()
	if before.RootFS.CapacityBytes == 0 {
		t.Fatal("the root filesystem has no size")
	}
	if err := os.WriteFile(root, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	after, err := read()
	if err == nil || !strings.Contains(err.Error(), "root filesystem: ") {
		t.Errorf("the error is %v, want one about the root filesystem", err)
	}
	if after.RootFS != before.RootFS {
		t.Errorf("the root filesystem is %+v, want %+v", after.RootFS, before.RootFS)
	}
	if err := os.Remove(root); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); err != nil && strings.Contains(err.Error(), "root filesystem: ") {
		t.Error(err)
	}
}

func TestAFactWithAnError(t *testing.T) {
	for name, c := range map[string]struct {
		known, read, want int64
		err               error
	}{
		"read":               {known: 1, read: 2, want: 2},
		"none any more":      {known: 1, want: 0},
		"failed":             {known: 1, want: 1, err: os.ErrPermission},
		"a part":             {known: 3, read: 2, want: 3, err: os.ErrPermission},
		"a part, first read": {read: 2, want: 2, err: os.ErrPermission},
	} {
		got := c.known
		err := fact("pid limit", &got, func() (int64, error) { return c.read, c.err })
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %d, %v; want %d, %v", name, got, err, c.want, c.err)
		}
	}
}

// noHugePages is a machine whose directory of huge pages can't be read.
type noHugePages struct {
	sysfs.SysFs
	err error
}

func (n noHugePages) GetHugePagesInfo(string) ([]os.FileInfo, error) { return nil, n.err }

func TestHugePagesThatCannotBeRead(t *testing.T) {
	if pages, err := hugePages(noHugePages{err: os.ErrNotExist}); err != nil || len(pages) > 0 {
		t.Errorf("a kernel without them: %v, %v", pages, err)
	}
	if pages, err := hugePages(noHugePages{err: os.ErrPermission}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a directory that can't be read: %v, %v", pages, err)
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
