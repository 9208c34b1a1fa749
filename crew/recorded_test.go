package crew

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// stateFiles are the state files that releases have written (docs/adr/0028), with what sha256sum says of them. What is
// recorded of a new release adds lines. The bus's messages have theirs in bus/topic/testdata/SHA256SUMS.
var stateFiles = map[string]string{
	"gc/internal/image/testdata/v0.1.0/images.json": "8440e56fcf256ee84f15cd62bad17d298be01823522874bb453c282caadeb490",
	"podsync/internal/image/pullrecords/testdata/v0.1.0/" +
		"sha256-5cb9f8a80e907f8d836131fe32c838f5bbc5ac01993024a500bdc6c6b14e5a47": "8b81d1ea33e0c9793cfb745f806daf68" +
		"df35814fa22659924ac1bd95536b258b",
}

var ofRelease = regexp.MustCompile(`/testdata/v\d+\.\d+\.\d+/`)

// What a release has written can't be changed any more.
func TestArchStateFilesOfReleasesAreNeverChanged(t *testing.T) {
	left := map[string]bool{}
	for name := range stateFiles {
		left[name] = true
	}
	err := filepath.WalkDir("../services", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !ofRelease.MatchString(filepath.ToSlash(path)) {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel("../services", path)
		switch sum := fmt.Sprintf("%x", sha256.Sum256(data)); {
		case stateFiles[name] == "":
			t.Errorf("%s isn't in stateFiles: its sum is %s", name, sum)
		case stateFiles[name] != sum:
			t.Errorf("%s was changed: take it from git again", name)
		}
		delete(left, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range left {
		t.Errorf("%s was removed: take it from git again", name)
	}
}
