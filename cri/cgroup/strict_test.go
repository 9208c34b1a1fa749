package cgroup

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

func TestNumberInFile(t *testing.T) {
	for content, want := range map[string]int64{"5\n": 5, "max\n": math.MaxInt64, "-1": -1} {
		if n, err := numberIn(file(t, content)); err != nil || n != want {
			t.Errorf("%q: %d, %v; want %d", content, n, err, want)
		}
	}
	for _, content := range []string{"", "x", "1 2"} {
		path := file(t, content)
		if _, err := numberIn(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: error %v, want one that names the file", content, err)
		}
	}
	if _, err := numberIn(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want that there is no file", err)
	}
}

func TestFieldsInFile(t *testing.T) {
	path := file(t, "MemTotal:  16 kB\nMemFree: 8 kB\nodd\nbad x\n")
	if got, err := fieldsIn(path, "MemFree:", "MemTotal:"); err != nil || !slices.Equal(got, []int64{8, 16}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, name := range []string{"bad", "odd", "Mem"} {
		if _, err := fieldsIn(path, name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v, want one that names it", name, err)
		}
	}
}

func TestPIDLimit(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(proc, "sys/kernel", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(proc, "sys/kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	if n, err := PIDLimit(proc); err == nil || n != 0 {
		t.Errorf("of nothing: %d, %v", n, err)
	}
	write("pid_max", "4194304\n")
	write("threads-max", "1000\n")
	if n, err := PIDLimit(proc); err != nil || n != 1000 {
		t.Errorf("limit %d, %v; want the smaller bound 1000", n, err)
	}
	write("threads-max", "many")
	if n, err := PIDLimit(proc); n != 4194304 || err == nil || !strings.Contains(err.Error(), "threads-max") {
		t.Errorf("%d, error %v; want the other bound, and an error that names the file", n, err)
	}
}
