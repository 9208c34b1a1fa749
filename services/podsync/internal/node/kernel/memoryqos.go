package kernel

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// warnOfMemoryQoS logs where the feature gate MemoryQoS has no effect, or a bad one: before Linux 5.9 processes that
// are throttled by memory.high may make no progress at all.
func warnOfMemoryQoS(proc string, cgroupV2 bool, log *slog.Logger) {
	if !cgroupV2 {
		log.Warn("the feature gate MemoryQoS is on and has no effect with cgroup v1: boot with cgroup v2")
		return
	}
	text, err := os.ReadFile(filepath.Join(proc, "sys/kernel/osrelease"))
	release := strings.TrimSpace(string(text))
	var major, minor int
	if err == nil {
		_, err = fmt.Sscanf(release, "%d.%d", &major, &minor)
	}
	switch {
	case err != nil:
		log.Warn("can't find out whether the kernel is fit for the feature gate MemoryQoS", "error", err)
	case major < 5 || major == 5 && minor < 9:
		log.Warn("the feature gate MemoryQoS is on, and processes that it throttles may hang with this kernel",
			"kernel", release, "wanted", "5.9 or later")
	}
}
