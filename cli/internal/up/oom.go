package up

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// oomScoreAdj is the kubelet's own: below that of each pod, guaranteed ones included (-997). The units of the daemons
// have the same.
const oomScoreAdj = "-999"

// protect has the kernel kill this process and its children last when memory runs out; file is the oom_score_adj of the
// process. Where the process may not lower it, nothing changes.
func protect(file string) error {
	err := os.WriteFile(file, []byte(oomScoreAdj), 0o644)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("set oom_score_adj: %w", err)
	}
	return nil
}
