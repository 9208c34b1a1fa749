package settings

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Daemon is a daemon that runs.
type Daemon struct {
	Name    string    `json:"daemon"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Args are the flags that all daemons have in common, each as --name=value. Paths are absolute.
	Args []string `json:"flags"`
}

// ticks is how many of /proc's units of time are in a second. The kernel says so to all programs.
const ticks = 100

// Crew finds the daemons that run with a run directory, by name. proc is where the kernel shows its processes.
func Crew(proc, runDir string) ([]Daemon, error) {
	runDir, err := filepath.Abs(runDir)
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	dirs, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return nil, err
	}
	boot, err := bootTime(proc)
	if err != nil {
		return nil, err
	}
	var crew []Daemon
	for _, dir := range dirs {
		crew = append(crew, daemonsOf(dir, runDir, boot)...)
	}
	slices.SortFunc(crew, func(a, b Daemon) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.PID, b.PID))
	})
	return crew, nil
}

// daemonsOf are the daemons of one process: none, one, or several in the compact layout. A process may end at any
// moment, so that what can't be read is none.
func daemonsOf(dir, runDir string, boot time.Time) []Daemon {
	command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || len(command) == 0 {
		return nil
	}
	names, args := split(strings.Split(strings.TrimSuffix(string(command), "\x00"), "\x00"))
	if len(names) == 0 {
		return nil
	}
	line, err := parse(args, true)
	if err != nil || line.set.NArg() > 0 { // no daemon has arguments: this is a command of another program
		return nil
	}
	home, err := os.Readlink(filepath.Join(dir, "cwd"))
	if err != nil {
		home = "/"
	}
	if anchored(home, line.flags.RunDir) != runDir {
		return nil
	}
	pid, err := strconv.Atoi(filepath.Base(dir))
	if err != nil {
		return nil
	}
	var found []Daemon
	for _, name := range names {
		found = append(found, Daemon{
			Name: name, PID: pid, Started: started(dir, boot), Args: anchor(home, line.flags.Args()),
		})
	}
	return found
}

// split takes a command line apart into the names of its daemons and their flags. There are no names if it isn't one of
// kubelot's daemons.
func split(args []string) (names, flags []string) {
	program, args := filepath.Base(args[0]), args[1:]
	if program == "kubelot-all" && len(args) > 0 && args[0] != "run" {
		program, args = "kubelot-"+strings.TrimPrefix(args[0], "kubelot-"), args[1:]
	}
	name, ours := strings.CutPrefix(program, "kubelot-")
	switch {
	case !ours || name == "":
		return nil, nil
	case len(args) > 1 && args[0] == "run":
		return strings.Split(args[1], ","), args[2:]
	}
	return []string{name}, args
}

// pathFlags are the flags whose values are paths.
var pathFlags = []string{
	"bootstrap-kubeconfig", "bus-socket", "cert-dir", "client-ca-file", "config", "config-dir", "kubeconfig",
	"pod-logs-dir", "pod-manifest-path", "resolv-conf", "root-dir", "run-dir", "tls-cert-file", "tls-private-key-file",
	"volume-plugin-dir",
}

// anchor makes the paths among the flags absolute, which belong to the directory home.
func anchor(home string, args []string) []string {
	anchoredArgs := make([]string, 0, len(args))
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if slices.Contains(pathFlags, strings.TrimPrefix(name, "--")) && value != "" {
			arg = name + "=" + anchored(home, value)
		}
		anchoredArgs = append(anchoredArgs, arg)
	}
	return anchoredArgs
}

func anchored(home, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(home, path)
}

// bootTime is when the machine was started.
func bootTime(proc string) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return time.Time{}, fmt.Errorf("find out when the daemons were started: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "btime "); found {
			seconds, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("find out when the daemons were started: %w", err)
			}
			return time.Unix(seconds, 0), nil
		}
	}
	return time.Time{}, fmt.Errorf("find out when the daemons were started: %s/stat has no btime", proc)
}

// startField is the place of the start time among the fields behind the program's name; see proc(5).
const startField = 19

func started(dir string, boot time.Time) time.Time {
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return time.Time{}
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= startField {
		return time.Time{}
	}
	since, err := strconv.ParseInt(fields[startField], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return boot.Add(time.Duration(since) * time.Second / ticks)
}
