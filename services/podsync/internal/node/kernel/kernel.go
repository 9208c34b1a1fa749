// Package kernel checks and sets what the kubelet wants of the kernel before the first pod starts: no swap, unless it
// is allowed, and six parameters.
package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kubelot.dev/daemon/swap"
)

// Options are fields of KubeletConfiguration.
type Options struct {
	// FailSwapOn refuses a machine that swaps.
	FailSwapOn bool
	// Protect (protectKernelDefaults) refuses parameters with other values than wanted; they are set otherwise.
	Protect bool
	// MemoryQoS is the feature gate, and CgroupV2 whether the machine has cgroup v2, without which the gate has no effect.
	MemoryQoS, CgroupV2 bool
}

// parameters are the wanted values by the file below /proc/sys: memory is handed out without counting, the OOM killer
// kills instead of the kernel panicking, a kernel that does panic, on each fault, reboots after ten seconds, and there
// are keys for as many containers as there may be.
var parameters = []struct {
	path string
	want int
}{
	{"vm/overcommit_memory", 1},
	{"vm/panic_on_oom", 0},
	{"kernel/panic", 10},
	{"kernel/panic_on_oops", 1},
	{"kernel/keys/root_maxkeys", 1000000},
	{"kernel/keys/root_maxbytes", 25000000},
}

// Prepare makes the machine fit for pods; proc is where /proc is mounted. The error names everything that isn't as it
// must be. A parameter that can't be set is logged only: inside a container that is the rule.
func Prepare(proc string, o Options, log *slog.Logger) error {
	var problems []error
	swaps, err := swap.On(filepath.Join(proc, "swaps"))
	switch {
	case err != nil:
		problems = append(problems, fmt.Errorf("failed to determine if swap is on: %w", err))
	case o.FailSwapOn && swaps:
		problems = append(problems, errors.New("running with swap on is not supported, please disable swap or set "+
			"--fail-swap-on flag to false"))
	}
	if o.MemoryQoS {
		warnOfMemoryQoS(proc, o.CgroupV2, log)
	}
	for _, p := range parameters {
		name := strings.ReplaceAll(p.path, "/", ".")
		file := filepath.Join(proc, "sys", p.path)
		is, err := read(file)
		switch {
		case err == nil && is == p.want:
		case o.Protect && err != nil:
			problems = append(problems, fmt.Errorf("read the kernel flag %s: %w", name, err))
		case o.Protect:
			problems = append(problems, fmt.Errorf("invalid kernel flag: %s, expected value: %d, actual value: %d: set it "+
				"with sysctl, or set protectKernelDefaults to false", name, p.want, is))
		case err != nil:
			log.Warn("can't read a kernel flag", "flag", name, "error", err)
		default:
			set(file, name, is, p.want, log)
		}
	}
	return errors.Join(problems...)
}

func read(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func set(file, name string, is, want int, log *slog.Logger) {
	if err := os.WriteFile(file, []byte(strconv.Itoa(want)), 0o644); err != nil {
		log.Error("can't set a kernel flag, pods run without it", "flag", name, "value", is, "wanted", want, "error", err)
		return
	}
	log.Info("set a kernel flag", "flag", name, "value", want, "before", is)
}
