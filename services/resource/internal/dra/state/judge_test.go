package state

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRewrite reads directories with files that a kubelet's own code has written, and writes what it has read into
// others. test/differential/drastate gives them, and lets the kubelet's code read what is written here.
func TestRewrite(t *testing.T) {
	given := os.Getenv("KUBELOT_DRASTATE")
	if given == "" {
		t.Skip("test/differential/drastate runs it")
	}
	dirs, err := filepath.Glob(filepath.Join(given, "kubelet", "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("there are no files: %v", err)
	}
	for _, from := range dirs {
		to := filepath.Join(given, "kubelot", filepath.Base(from))
		if err := os.MkdirAll(to, 0o700); err != nil {
			t.Fatal(err)
		}
		book, err := ReadClaims(from)
		if err != nil {
			t.Errorf("%s: %v", from, err)
			continue
		}
		if err := WriteClaims(to, book); err != nil {
			t.Error(err)
		}
		devices, err := ReadHealth(from)
		if err != nil {
			t.Errorf("%s: %v", from, err)
			continue
		}
		if err := WriteHealth(to, devices); err != nil {
			t.Error(err)
		}
	}
}
