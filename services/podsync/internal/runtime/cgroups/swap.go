package cgroups

import (
	"os"
	"path/filepath"

	"github.com/opencontainers/cgroups"
)

// SwapController reports whether cgroups can limit swap here. A kernel may be built or booted without it
// (swapaccount=0), and a runtime fails every container that must be limited then.
func SwapController() bool {
	own := ""
	if Unified() {
		if mine, err := cgroups.ParseCgroupFile("/proc/self/cgroup"); err == nil {
			own = mine[""]
		}
	}
	return swapController(unifiedRoot, own, Unified())
}

// swapController looks below the root of the hierarchies. With version 2 the root itself has no limits: own is the
// cgroup of this process; where that is the root, as in a container, the cgroups next below it tell.
func swapController(root, own string, v2 bool) bool {
	if !v2 {
		_, err := os.Stat(filepath.Join(root, "memory", "memory.memsw.limit_in_bytes"))
		return err == nil
	}
	if _, err := os.Stat(filepath.Join(root, own, "memory.swap.max")); err == nil {
		return true
	}
	found, _ := filepath.Glob(filepath.Join(root, "*", "memory.swap.max"))
	return len(found) > 0
}
