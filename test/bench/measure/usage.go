package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc on every Linux that Go runs on.
const clockTick = time.Second / 100

// CPU is the CPU time so far of a process and its descendants, of those that
// were reaped too.
func CPU(root int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range tree(root) {
		used, err := CPUOf(pid)
		if err != nil {
			// It ended meanwhile; its parent has its time soon.
			continue
		}
		total += used
	}
	if total == 0 {
		return 0, fmt.Errorf("process %d has no CPU time: is it still there?", root)
	}
	return total, nil
}

// CPUOf is the CPU time so far of one process and of the children that it has reaped.
func CPUOf(pid int) (time.Duration, error) {
	fields, err := statFields(pid)
	if err != nil {
		return 0, err
	}
	var ticks int64
	// utime, stime, cutime, cstime: fields 14 to 17 of proc(5), counted from
	// the state, which is field 3.
	for _, field := range fields[11:15] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// tree is the process and its descendants.
func tree(root int) []int {
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		fields, err := statFields(pid)
		if err != nil {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// statFields are the fields of /proc/<pid>/stat from the state on; the command
// name before it may contain blanks and parentheses.
func statFields(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	end := strings.LastIndexByte(string(data), ')')
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 15 {
		return nil, errors.New("too few fields")
	}
	return fields, nil
}
