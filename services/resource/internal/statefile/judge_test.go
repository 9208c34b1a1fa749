package statefile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestRewrite reads files that a kubelet's own code has written, and writes the same files from what it has read.
// test/differential/statefile gives the files, and lets the kubelet's code read what is written here; without it, some
// of its files in testdata are rewritten.
func TestRewrite(t *testing.T) {
	from, to := "testdata", t.TempDir()
	if given := os.Getenv("KUBELOT_STATEFILES"); given != "" {
		from, to = filepath.Join(given, "kubelet"), filepath.Join(given, "kubelot")
	}
	dirs, err := filepath.Glob(filepath.Join(from, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	rewritten := 0
	for _, path := range dirs {
		relative, err := filepath.Rel(from, path)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(relative) == "fuzz" {
			continue
		}
		target := filepath.Join(to, relative)
		if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o700), rewrite(path, target)); err != nil {
			t.Error(err)
			continue
		}
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if made, err := os.ReadFile(target); err != nil || string(made) != string(old) {
			t.Errorf("%s: %v; the kubelet writes\n%s\nand we\n%s", path, err, old, made)
		}
		rewritten++
	}
	if t.Logf("rewritten: %d", rewritten); rewritten == 0 {
		t.Error("there are no files")
	}
}

func rewrite(from, to string) error {
	switch filepath.Base(from) {
	case CPUName:
		c, err := ReadCPU(from)
		return errors.Join(err, WriteCPU(to, c))
	case MemoryName:
		m, err := ReadMemory(from)
		return errors.Join(err, WriteMemory(to, m))
	case DevicesName:
		d, err := ReadDevices(from)
		return errors.Join(err, WriteDevices(to, d))
	}
	return errors.New("unknown file " + from)
}
