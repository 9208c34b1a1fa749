package containerd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// ctr runs containerd's own client in the namespace of the CRI.
func (c *Containerd) ctr(ctx context.Context, args ...string) error {
	args = append([]string{"--address", c.Socket, "--namespace", "k8s.io"}, args...)
	out, err := exec.CommandContext(ctx, c.release.ctr, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// capSysResource is the capability's number in capabilities(7).
const capSysResource = 24

// hasSysResource reports whether this process may lower an oom_score_adj; where
// it may not (an unprivileged test machine), containerd must not try.
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
