// Package running finds the processes of daemons by the paths that they were started by.
//
// Reads: /proc. Guarantees: a process whose executable was replaced or removed is found too. Processes of pods and of
// other users, which may call themselves what they like, are not found, and nothing is run that is theirs.
package running

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"kubelot.dev/daemon/sleep"
)

// Process is a daemon's.
type Process struct {
	PID int
	// Executable is the file that it runs, with all links followed; another file may be there by now.
	Executable string
	// Replaced reports whether the file was removed, or another one is in its place.
	Replaced bool
	// Unit is systemd's name of it; empty where systemd doesn't run it.
	Unit string
}

// replaced is what the kernel appends to the name of a file that is no longer there.
const replaced = " (deleted)"

// Of finds the process that was started by the path, which may be a link; PID 0 if there is none.
func Of(path string) Process {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return Process{}
	}
	for _, file := range commands {
		command, err := os.ReadFile(file)
		if program, _, _ := bytes.Cut(command, []byte{0}); err != nil || string(program) != path {
			continue
		}
		dir := filepath.Dir(file)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || !Ours(pid) {
			continue
		}
		executable, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil {
			continue // it has ended
		}
		executable, gone := strings.CutSuffix(executable, replaced)
		return Process{pid, executable, gone, unitOf(filepath.Join(dir, "cgroup"), filepath.Base(path))}
	}
	return Process{}
}

// Ours reports whether the process may be one of this node's crew: it is no pod's, and no other user's.
func Ours(pid int) bool {
	dir := fmt.Sprintf("/proc/%d", pid)
	return onHost(dir) && ofCrew(dir)
}

// onHost reports whether the process has the root directory of this one. Those in containers have another.
func onHost(dir string) bool {
	root, err := os.Stat(filepath.Join(dir, "root"))
	own, errOwn := os.Stat("/proc/self/root")
	return err == nil && errOwn == nil && os.SameFile(root, own)
}

// ofCrew reports whether the process was started by root or by this user, or runs as one of the daemons' users.
func ofCrew(dir string) bool {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return false // it has ended
	}
	for line := range strings.Lines(string(status)) {
		ids, found := strings.CutPrefix(line, "Uid:")
		if !found {
			continue
		}
		uid, _, _ := strings.Cut(strings.TrimSpace(ids), "\t") // the real one
		if uid == "0" || uid == strconv.Itoa(os.Geteuid()) {
			return true
		}
		u, err := user.LookupId(uid)
		return err == nil && strings.HasPrefix(u.Username, "kubelot-")
	}
	return false
}

// unitOf is the unit of that name whose cgroup the process is in.
func unitOf(cgroupFile, name string) string {
	cgroups, err := os.ReadFile(cgroupFile)
	unit := UnitName(name)
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

// UnitName is the unit of an executable such as kubelot-gc.
func UnitName(executable string) string { return executable + ".service" }

// Restart has the process replaced by one that its path now leads to. It doesn't wait. A unit is also started again
// while none of its processes runs.
func (p Process) Restart(ctx context.Context) error {
	if p.Unit == "" {
		return p.Terminate()
	}
	return Systemctl(ctx, "restart", "--no-block", p.Unit)
}

// Terminate asks the process to end. One that has ended already is no error.
func (p Process) Terminate() error { return p.signal(syscall.SIGTERM, "stop") }

// Asleep reports whether the daemon sleeps. Then Executable is the program that waits in its place.
func (p Process) Asleep() bool { return filepath.Base(p.Executable) == sleep.Program }

// Wake wakes a daemon that sleeps. It doesn't wait. One that is awake reads its configuration again.
func (p Process) Wake() error { return p.signal(syscall.SIGHUP, "wake") }

func (p Process) signal(s syscall.Signal, what string) error {
	if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s process %d: %w", what, p.PID, err)
	}
	return nil
}

// apart has a command run in a process group of its own: Ctrl-C and the end of the terminal are this process's to
// answer.
func apart(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// Systemctl runs systemctl. Neither Ctrl-C nor the end of the terminal reaches it.
func Systemctl(ctx context.Context, args ...string) error {
	out, err := apart(exec.CommandContext(ctx, "systemctl", args...)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// LoadState is what systemd says of the file of a unit: loaded, masked, not-found and others.
func LoadState(ctx context.Context, unit string) (string, error) {
	out, err := apart(exec.CommandContext(ctx, "systemctl", "show", "--value", "--property=LoadState", unit)).Output()
	if err != nil {
		return "", fmt.Errorf("systemctl show %s: %w", unit, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Version asks the process's own executable, whatever its path leads to now.
func (p Process) Version(ctx context.Context, name string) (string, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/exe", p.PID))
	if err != nil {
		return "", fmt.Errorf("ask process %d for its version: %w", p.PID, err)
	}
	defer f.Close()
	if err := trusted(f); err != nil {
		return "", fmt.Errorf("ask process %d for its version: %w", p.PID, err)
	}
	return version(ctx, "/proc/self/fd/3", name, f)
}

// trusted is an error unless the file is root's or this user's, and nobody else's to write. A daemon that was taken
// over may have become another program.
func trusted(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if owner != 0 && int(owner) != os.Geteuid() || info.Mode()&0o022 != 0 {
		return fmt.Errorf("its executable belongs to the user %d, and has the mode %v", owner, info.Mode())
	}
	return nil
}

// VersionOf runs the executable and returns the version that it says. That it runs shows that it is one for this
// machine.
func VersionOf(ctx context.Context, executable string) (string, error) {
	return version(ctx, executable, executable)
}

// saysVersion is what each daemon answers to --version.
var saysVersion = regexp.MustCompile(`^kubelot-\S+ version (\S+)\n`)

// version runs a file by a name, by which a multi-call executable knows what it is to be. It has the open files from 3
// on.
func version(ctx context.Context, file, name string, open ...*os.File) (string, error) {
	cmd := exec.CommandContext(ctx, file, "--version")
	if filepath.Base(name) == "kubelot-compact" {
		cmd = exec.CommandContext(ctx, file, "run", "bus", "--version")
	}
	cmd.Args[0], cmd.ExtraFiles = name, open
	out, err := apart(cmd).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", name, err, bytes.TrimSpace(out))
	}
	match := saysVersion.FindSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("%s --version says %q, as no daemon of kubelot does", name, bytes.TrimSpace(out))
	}
	return string(match[1]), nil
}
