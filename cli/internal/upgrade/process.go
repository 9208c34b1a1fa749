package upgrade

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// process is a daemon's.
type process struct {
	pid int
	// executable is what it runs, with all links followed.
	executable string
	// unit is systemd's name of it; empty where systemd doesn't run it.
	unit string
}

// processOf finds the process that was started by the link; pid 0 if there is none.
func processOf(linkPath string) process {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return process{}
	}
	for _, path := range commands {
		command, err := os.ReadFile(path)
		if program, _, _ := bytes.Cut(command, []byte{0}); err != nil || string(program) != linkPath {
			continue
		}
		dir := filepath.Dir(path)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		executable, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil {
			continue // it has ended
		}
		return process{pid, executable, unitOf(filepath.Join(dir, "cgroup"), filepath.Base(linkPath))}
	}
	return process{}
}

// unitOf is the unit of that name whose cgroup the process is in.
func unitOf(cgroupFile, name string) string {
	cgroups, err := os.ReadFile(cgroupFile)
	unit := name + ".service"
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(cgroups)) {
		if filepath.Base(strings.TrimSpace(line)) == unit {
			return unit
		}
	}
	return ""
}

// restart has the process replaced by one that the link now leads to. It doesn't wait.
func (p process) restart(ctx context.Context) error {
	if p.unit == "" {
		if err := syscall.Kill(p.pid, syscall.SIGTERM); err != nil {
			return fmt.Errorf("stop process %d: %w", p.pid, err)
		}
		return nil
	}
	out, err := exec.CommandContext(ctx, "systemctl", "restart", "--no-block", p.unit).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl restart %s: %w: %s", p.unit, err, bytes.TrimSpace(out))
	}
	return nil
}

// saysVersion is what each daemon answers to --version.
var saysVersion = regexp.MustCompile(`^kubelot-\S+ version (\S+)\n`)

// versionOf runs the executable and returns the version that it says. That it runs shows that it is one for this
// machine.
func versionOf(ctx context.Context, executable string) (string, error) {
	args := []string{"--version"}
	if filepath.Base(executable) == prefix+compactName {
		args = []string{"run", busName, "--version"}
	}
	out, err := exec.CommandContext(ctx, executable, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", executable, err, bytes.TrimSpace(out))
	}
	match := saysVersion.FindSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("%s --version says %q, as no daemon of kubelot does", executable, bytes.TrimSpace(out))
	}
	return string(match[1]), nil
}
