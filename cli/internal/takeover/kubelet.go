package takeover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kubelot.dev/bus/pause"
	"kubelot.dev/cli/internal/running"
	"kubelot.dev/daemon/config"
)

// Process is an agent of a node.
type Process struct {
	PID        int
	Executable string
	Args       []string // the whole command line
	// Unit is systemd's name of it; empty where systemd doesn't run it.
	Unit string
}

// Kubelet is the kubelet that runs; PID 0 if there is none. With several, as on a machine with test beds, root chooses
// the one with this root directory.
func Kubelet(root string) (Process, error) {
	return only("kubelet", func(p Process) bool {
		return filepath.Base(p.Args[0]) == "kubelet" && rootOf(p.Args) == filepath.Clean(root)
	})
}

// kubeletUnit is the kubelet's unit on most nodes.
const kubeletUnit = "kubelet.service"

// UnderSystemd is the process with its unit also where it has left the unit's cgroup (kubeletCgroups).
func (p Process) UnderSystemd(ctx context.Context) Process {
	if p.Unit != "" {
		return p
	}
	if state, err := stateOf(ctx, kubeletUnit); err == nil && state.mainPID == strconv.Itoa(p.PID) {
		p.Unit = kubeletUnit
	}
	return p
}

// Up is the kubelot up that runs the crew of the run directory; PID 0 if there is none. One in a pod, such as the node
// of a cluster in containers, runs another node's crew.
func Up(runDir string) (Process, error) {
	return only("kubelot up", func(p Process) bool {
		return filepath.Base(p.Args[0]) == "kubelot" && len(p.Args) > 1 && (p.Args[1] == "up" || p.Args[1] == "takeover") &&
			valueOf(p.Args, "run-dir", config.RunDir) == filepath.Clean(runDir) && running.Ours(p.PID)
	})
}

// Environ is the environment that the process was started with; nothing if it has ended.
func (p Process) Environ() []string {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(environ), "\x00"), "\x00")
}

func rootOf(args []string) string { return valueOf(args, "root-dir", config.RootDir) }

// valueOf is the path that a flag names.
func valueOf(args []string, flag, otherwise string) string {
	value := otherwise
	for i, arg := range args {
		name, text, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if config.FlagName(name) != flag || !strings.HasPrefix(arg, "-") {
			continue
		}
		if !given && i+1 < len(args) {
			text = args[i+1]
		}
		value = text
	}
	return filepath.Clean(value)
}

func only(what string, is func(Process) bool) (Process, error) {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return Process{}, err
	}
	var found Process
	for _, path := range commands {
		p, ok := read(filepath.Dir(path))
		if !ok || p.PID == os.Getpid() || !is(p) {
			continue
		}
		if found.PID != 0 {
			return Process{}, fmt.Errorf("two processes are a %s: %d and %d; stop one of them", what, found.PID, p.PID)
		}
		found = p
	}
	return found, nil
}

func read(dir string) (Process, bool) {
	command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || len(command) == 0 {
		return Process{}, false // it has ended, or is the kernel's
	}
	executable, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return Process{}, false
	}
	p := Process{Executable: executable}
	for _, arg := range bytes.Split(bytes.TrimSuffix(command, []byte{0}), []byte{0}) {
		p.Args = append(p.Args, string(arg))
	}
	if p.PID, err = strconv.Atoi(filepath.Base(dir)); err != nil {
		return Process{}, false
	}
	cgroups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	for line := range strings.Lines(string(cgroups)) {
		if base := filepath.Base(strings.TrimSpace(line)); err == nil && strings.HasSuffix(base, ".service") {
			p.Unit = base
		}
	}
	return p, true
}

// stopPatience is how long an agent may take to stop.
const stopPatience = time.Minute

// Stop ends the process in order and waits for its end.
func (p Process) Stop(ctx context.Context) error {
	if err := syscall.Kill(p.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop process %d: %w", p.PID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	for p.runs() {
		pause.For(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("process %d (%s) doesn't stop within %s: %w", p.PID, p.Args[0], stopPatience, context.Cause(ctx))
		}
	}
	return nil
}

// runs reports whether the process is there and hasn't ended: its parent may not have looked at it yet.
func (p Process) runs() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
