package images

import (
	"os"
	"path/filepath"
	"testing"
)

// What Archive has written is there under its reference. An image's configuration has the hashes of its layers.
func TestReadArchive(t *testing.T) {
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "program"), filepath.Join(dir, "images.tar")
	if err := os.WriteFile(program, []byte("text"), 0o755); err != nil {
		t.Fatal(err)
	}
	written, err := Named(program, map[string]string{"a": "example.org/a:1", "b": "example.org/b:2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := Archive(archive, written...); err != nil {
		t.Fatal(err)
	}
	read, err := Read(archive)
	if err != nil || len(read) != len(written) {
		t.Fatalf("read %d images of %d: %v", len(read), len(written), err)
	}
	for i, img := range read {
		want, err := written[i].Image.ConfigName()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := img.Image.ConfigName(); err != nil || got != want || img.Ref != written[i].Ref {
			t.Errorf("%s is %s, want %s %s (error %v)", img.Ref, got, written[i].Ref, want, err)
		}
	}
	if _, err := Read(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that isn't there is no error")
	}
}
