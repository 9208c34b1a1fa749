package kernfile

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNumber(t *testing.T) {
	for content, want := range map[string]int64{"5\n": 5, "max\n": math.MaxInt64, "-1": -1} {
		if n, err := Number(file(t, content)); err != nil || n != want {
			t.Errorf("%q: %d, %v; want %d", content, n, err, want)
		}
	}
	for _, content := range []string{"", "x", "1 2"} {
		path := file(t, content)
		if _, err := Number(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: error %v, want one that names the file", content, err)
		}
	}
	if _, err := Number(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want that there is no file", err)
	}
}

func TestFields(t *testing.T) {
	path := file(t, "MemTotal:  16 kB\nMemFree: 8 kB\nodd\nbad x\n")
	if got, err := Fields(path, "MemFree:", "MemTotal:"); err != nil || !slices.Equal(got, []int64{8, 16}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, name := range []string{"bad", "odd", "Mem"} {
		if _, err := Fields(path, name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v, want one that names it", name, err)
		}
	}
}
