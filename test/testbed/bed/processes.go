package bed

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killAll kills the bed's processes until none is left. Programs with a PID
// file first, so that nothing starts new containers meanwhile.
func (b *Bed) killAll() error {
	deadline := time.Now().Add(patience)
	for {
		pids, err := b.processes()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v can't be killed", pids)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// processes lists what is alive, programs before shims before containers.
func (b *Bed) processes() ([]int, error) {
	table, err := readProcesses()
	if err != nil {
		return nil, err
	}
	pids := append(b.programs(table), b.agents(table)...)
	shims := shimsOf(table, b.CRISocket())
	pids = append(pids, shims...)
	pids = append(pids, descendants(table, shims)...)
	inCgroup, err := b.cgroupPIDs()
	if err != nil {
		return nil, err
	}
	pids = append(pids, inCgroup...)
	seen := map[int]bool{os.Getpid(): true, os.Getppid(): true}
	return slices.DeleteFunc(pids, func(pid int) bool {
		p, alive := table[pid]
		// A zombie is its parent's to reap; there is nothing left to kill.
		gone := seen[pid] || !alive || p.zombie
		seen[pid] = true
		return gone
	}), nil
}

// programs are the processes whose PID file is in the bed's log directory. A
// PID may have been given to somebody else since, so the process must also
// carry the bed's directory in its arguments or work in it.
func (b *Bed) programs(table map[int]process) []int {
	files, _ := filepath.Glob(filepath.Join(b.Logs(), "*.pid"))
	var pids []int
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			continue
		}
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if strings.Contains(table[pid].cmdline, b.Dir+"/") || cwd == b.Logs() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// agents are the daemons that kubelot's supervisor started, and the monitors of CRI-O's containers; they have no PID
// file, but arguments that point into the bed.
func (b *Bed) agents(table map[int]process) []int {
	var pids []int
	for pid, p := range table {
		program, rest, _ := strings.Cut(p.cmdline, "\x00")
		name := filepath.Base(program)
		if (strings.HasPrefix(name, "kubelot") || name == "conmon") && strings.Contains(rest, b.Dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

type process struct {
	parent  int
	zombie  bool
	cmdline string // arguments, each ended by a NUL
}

func readProcesses() (map[int]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	table := map[int]process{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// Errors are processes that ended meanwhile.
		stat, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue
		}
		parent, zombie, err := parseStat(string(stat))
		if err != nil {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		table[pid] = process{parent: parent, zombie: zombie, cmdline: string(cmdline)}
	}
	return table, nil
}

// parseStat reads state and parent of /proc/<pid>/stat. The command name before them is in parentheses and may contain
// any character. A process whose first thread alone has ended looks like a zombie too, but still has its files and
// sockets: a killed process may be so for a while.
func parseStat(stat string) (parent int, zombie bool, err error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, false, errors.New("no command name")
	}
	fields := strings.Fields(stat[end+1:])
	const threads = 17
	if len(fields) <= threads {
		return 0, false, errors.New("too few fields")
	}
	parent, err = strconv.Atoi(fields[1])
	ended := fields[0] == "Z" || fields[0] == "X"
	return parent, ended && (fields[threads] == "0" || fields[threads] == "1"), err
}

// shimsOf are the containerd shims that serve the containerd on socket.
func shimsOf(table map[int]process, socket string) []int {
	var pids []int
	for _, pid := range slices.Sorted(maps.Keys(table)) {
		args := strings.Split(table[pid].cmdline, "\x00")
		if strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && slices.Contains(args, socket) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Children are the processes that pid has started.
func Children(pid int) ([]int, error) {
	table, err := readProcesses()
	if err != nil {
		return nil, err
	}
	var pids []int
	for child, p := range table {
		if p.parent == pid {
			pids = append(pids, child)
		}
	}
	return pids, nil
}

// Running are those of the processes that are there and more than an entry that nobody has read; all of them if that
// can't be known.
func Running(pids []int) []int {
	table, err := readProcesses()
	if err != nil {
		return pids
	}
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		p, ok := table[pid]
		return !ok || p.zombie
	})
}

func descendants(table map[int]process, roots []int) []int {
	var all []int
	for level := roots; len(level) > 0; {
		var next []int
		for pid, p := range table {
			if slices.Contains(level, p.parent) {
				next = append(next, pid)
			}
		}
		all = append(all, next...)
		level = next
	}
	return all
}
