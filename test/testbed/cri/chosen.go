package cri

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/tools"
)

// RuntimeEnv names the environment variable that says which container runtime beds run: debian-containerd for the
// containerd and runc that Debian has, crio for CRI-O with Debian's conmon and the runc of .bin, nothing for the
// containerd and runc of .bin.
const RuntimeEnv = "TESTBED_RUNTIME"

// The values of RuntimeEnv.
const (
	DebianContainerd = "debian-containerd"
	crioRuntime      = "crio"
)

// chosen is the runtime that RuntimeEnv asks for. It is built or fetched if it isn't there.
func chosen(ctx context.Context, b *bed.Bed, box *tools.Box) (product, error) {
	switch name := os.Getenv(RuntimeEnv); name {
	case "":
		return newContainerd(b, box), nil
	case DebianContainerd:
		return newDebianContainerd(ctx, b, box)
	case crioRuntime:
		return newCRIO(ctx, b, box)
	default:
		return nil, fmt.Errorf("%s=%s: want %s, %s or nothing", RuntimeEnv, name, DebianContainerd, crioRuntime)
	}
}

// capSysResource is the capability's number in capabilities(7).
const capSysResource = 24

// hasSysResource reports whether this process may lower an oom_score_adj; where
// it may not (an unprivileged test machine), the runtime must not try.
func hasSysResource() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err == nil && mask&(1<<capSysResource) != 0
		}
	}
	return false
}
