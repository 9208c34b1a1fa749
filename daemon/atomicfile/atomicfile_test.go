package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mounttest"
)

func TestMain(m *testing.M) {
	mounttest.Enter()
	os.Exit(m.Run())
}

// only reports whether the file is all that its directory holds.
func only(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(path) {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
}

func TestWrite(t *testing.T) {
	type writer = func(string, []byte, fs.FileMode) error
	for name, write := range map[string]writer{"write": Write, "write durably": WriteDurably} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			for _, step := range []struct {
				text string
				mode fs.FileMode
			}{{"one", 0o600}, {"two, which is longer", 0o666}, {"", 0o644}} {
				// Left by a process that was killed, with the right to read it for everybody.
				if err := os.WriteFile(path+Suffix, []byte("half of something"), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := write(path, []byte(step.text), step.mode); err != nil {
					t.Fatal(err)
				}
				text, err := os.ReadFile(path)
				if err != nil || string(text) != step.text {
					t.Errorf("%q, %v; want %q", text, err, step.text)
				}
				if info, err := os.Stat(path); err != nil || info.Mode() != step.mode {
					t.Errorf("mode %v, %v; want %v", info.Mode(), err, step.mode)
				}
				only(t, path)
			}
		})
	}
}

func TestALinkIsReplaced(t *testing.T) {
	target := filepath.Join(t.TempDir(), "target")
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(target, []byte("mine"), 0o600), os.Symlink(target, path),
		os.Symlink(target, path+Suffix)); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "mine" {
		t.Errorf("the link's target holds %q, %v", text, err)
	}
	only(t, path)
}

func TestFailuresLeaveWhatWasThere(t *testing.T) {
	if err := Write(filepath.Join(t.TempDir(), "none", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want that there is no directory", err)
	}
	taken := filepath.Join(t.TempDir(), "directory")
	if err := os.MkdirAll(filepath.Join(taken, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(taken, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	only(t, taken)
}

func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a small filesystem can't be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "file")
	if err := Write(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte(strings.Repeat("x", 1<<20)), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want that the disk is full", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "before" {
		t.Errorf("%q, %v; want what was there", text, err)
	}
	only(t, path)
}
