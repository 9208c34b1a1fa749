// Package cgrouptest has cgroup trees for tests. V1 was recorded from a pod on a real machine; V2 is written after the
// kernel's documentation (admin-guide/cgroup-v2). Each has one pod with the container App; V1 has the container Other
// and the sandbox Box too.
package cgrouptest

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The trees.
var (
	//go:embed v1.txt
	V1 string
	//go:embed v2.txt
	V2 string
)

// What is in the trees.
const (
	UID   = "1a69be6e-6c8e-4bdc-a50b-bd36fe48a684"
	App   = "b81342284807215487a177fca51e81b3e85b9ba8ec86e81e68d091575f2d299e"
	Other = "f21fcdbdaaab391098d0c131799ccebfd0529b80616a29fc0e56a7539e33797c"
	Box   = "d2f3ea3a5c08ec034a1a0c197337ddf98907cf3b770b11e8fe1468afd6332bc6"
)

// Unpack writes a tree into a directory of the test's and returns the directory.
func Unpack(t testing.TB, tree string) string {
	t.Helper()
	root := t.TempDir()
	for _, part := range strings.Split("\n"+tree, "\n-- ")[1:] {
		file, content, _ := strings.Cut(part, " --\n")
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
