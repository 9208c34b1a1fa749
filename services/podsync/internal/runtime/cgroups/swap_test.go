package cgroups

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSwapController(t *testing.T) {
	for name, c := range map[string]struct {
		file, own string
		v2, want  bool
	}{
		"v2 with swap accounting": {
			"system.slice/kubelot.service/memory.swap.max",
			"/system.slice/kubelot.service", true, true,
		},
		"v2 in a container": {"system.slice/memory.swap.max", "/", true, true},
		"v2 without swap accounting": {
			"system.slice/kubelot.service/memory.max",
			"/system.slice/kubelot.service", true, false,
		},
		"v2 in a container without it either": {"system.slice/memory.max", "/", true, false},
		"v1 with swap accounting":             {"memory/memory.memsw.limit_in_bytes", "", false, true},
		"v1 without swap accounting":          {"memory/memory.limit_in_bytes", "", false, false},
	} {
		root := t.TempDir()
		file := filepath.Join(root, c.file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := swapController(root, c.own, c.v2); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
