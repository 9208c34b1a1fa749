package crew

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxTracked is how large a file of the repository may be, in bytes: what is larger was made by a program.
const maxTracked = 1 << 20

// tracked are the files of the repository, by their paths in it. Without git there is no list, and the test is skipped.
func tracked(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("git knows no files here: %v", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// Executables get into the repository by a `go build` in the directory of a main package.
func TestArchNothingBuiltIsTracked(t *testing.T) {
	for _, name := range tracked(t) {
		if fault := looksBuilt(filepath.Join("..", name)); fault != "" {
			t.Errorf("%s %s: remove it from the commit (git rm --cached), and have .gitignore name it", name, fault)
		}
	}
}

// looksBuilt says why a file doesn't belong into the repository; empty if it does, or is gone.
func looksBuilt(path string) string {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	if info.Size() > maxTracked {
		return fmt.Sprintf("has %d bytes, and may have %d", info.Size(), maxTracked)
	}
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	begin := make([]byte, 4)
	if n, err := io.ReadFull(file, begin); err != nil {
		begin = begin[:n]
	}
	if bytes.Equal(begin, []byte("\x7fELF")) {
		return "is an executable"
	}
	return ""
}

func TestLooksBuilt(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"text": "ELF", "empty": "", "executable": "\x7fELF\x02", "large": strings.Repeat("x", maxTracked+1),
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, want := looksBuilt(file) != "", name == "executable" || name == "large"; got != want {
			t.Errorf("%s looks built: %v", name, got)
		}
	}
}

var mainPackage = regexp.MustCompile(`(?m)^package main$`)

// git ignores what `go build` without -o leaves in the directory of each main package.
func TestArchExecutablesAreIgnored(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range tracked(t) {
		dir := path.Dir(name)
		if path.Ext(name) != ".go" || seen[dir] {
			continue
		}
		source, err := os.ReadFile(filepath.Join("..", name))
		if err != nil || !mainPackage.Match(source) {
			continue
		}
		seen[dir] = true
		executable := path.Join(dir, path.Base(dir))
		if exec.CommandContext(t.Context(), "git", "-C", "..", "check-ignore", "-q", executable).Run() != nil {
			t.Errorf("git would take %s, which go build makes there: name it in .gitignore", executable)
		}
	}
	if len(seen) < len(Daemons()) {
		t.Errorf("only %d main packages were found", len(seen))
	}
}

// recordedSums lists what releases wrote (test/e2e/skew, TestRecord), as sha256sum prints it.
const recordedSums = "testdata/recorded.sha256"

// What a release wrote is never edited: today's readers must understand it as it was.
func TestArchRecordingsAreNeverEdited(t *testing.T) {
	list, err := os.ReadFile(recordedSums)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(list)) {
		sum, name, found := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !found {
			t.Fatalf("%s: %q is no line of sha256sum", recordedSums, line)
		}
		want[name] = sum
	}
	for name := range recordings(t) {
		data, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		switch want[name] {
		case sum:
		case "":
			t.Errorf("%s lacks a recording; append\n%s  %s", recordedSums, sum, name)
		default:
			t.Errorf("%s was edited: git checkout the release's own, and have the reader understand it", name)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s is gone: a release wrote it, and its readers must still understand it", name)
	}
}

// recordings are the files in the directories testdata/v1.2.3.
func recordings(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	release := regexp.MustCompile(`/testdata/v\d+\.\d+\.\d+[^/]*/`)
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // a test has removed it
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir
		case !d.IsDir() && release.MatchString(filepath.ToSlash(name)):
			found[strings.TrimPrefix(filepath.ToSlash(name), "../")] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
