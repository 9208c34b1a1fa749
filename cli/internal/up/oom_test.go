package up

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// scoreOfTheCrew is the oom_score_adj that the children of a crew have which this process starts: the kubelet's, or
// this process's own if it may not lower it.
func scoreOfTheCrew(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:\t")
	line, _, _ := strings.Cut(rest, "\n")
	capabilities, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	if capabilities&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		return oomScoreAdj
	}
	t.Log("this process lacks CAP_SYS_RESOURCE, so it can't lower an oom_score_adj")
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(own))
}

func TestProtect(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "oom_score_adj")
	if err := protect(file); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(file); string(got) != "-999" {
		t.Errorf("oom_score_adj is %q, %v", got, err)
	}
	if err := protect(filepath.Join(dir, "gone", "file")); err == nil || !strings.Contains(err.Error(), "oom_score_adj") {
		t.Errorf("where there is no such file: %v", err)
	}
}

// The crew runs where it can't be protected.
func TestProtectWithoutTheRight(t *testing.T) {
	if scoreOfTheCrew(t) == oomScoreAdj {
		t.Skip("this process may lower its oom_score_adj")
	}
	if err := protect("/proc/self/oom_score_adj"); err != nil {
		t.Error(err)
	}
}
