package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// WorkingSet is the memory in bytes that the cgroup uses, without what the kernel can drop at once. It returns an error
// if any part of the figure can't be read, so that nobody acts on an incomplete figure.
//
// The root of version 2 has no figure for usage. WorkingSet then counts what version 1 counts for the root: anonymous
// memory and files. It doesn't count huge pages or the kernel's own memory, most of which is freed under pressure.
func (t *Tree) WorkingSet(cgroup string) (int64, error) {
	dir := t.dir("memory", cgroup)
	if t.v2 && cgroup == "/" {
		v, err := fieldsIn(path.Join(dir, "memory.stat"), "anon", "file", "inactive_file")
		if err != nil {
			return 0, err
		}
		return max(v[0]+v[1]-v[2], 0), nil
	}
	usage, inactive := "memory.usage_in_bytes", "total_inactive_file"
	if t.v2 {
		usage, inactive = "memory.current", "inactive_file"
	}
	used, err := numberIn(path.Join(dir, usage))
	if err != nil {
		return 0, err
	}
	values, err := fieldsIn(path.Join(dir, "memory.stat"), inactive)
	if err != nil {
		return 0, err
	}
	return max(used-values[0], 0), nil
}

// MemoryLimit is the cgroup's memory limit in bytes. The error is fs.ErrNotExist if there is no such cgroup. Without a
// limit the result is more than any machine has.
func (t *Tree) MemoryLimit(cgroup string) (int64, error) {
	name := "memory.limit_in_bytes"
	if t.v2 {
		name = "memory.max"
	}
	return numberIn(path.Join(t.dir("memory", cgroup), name))
}

// PodsMemory is the limit of the pods' cgroup and what they use, in bytes; a limit of 0 means that there is none below
// the machine's.
func (t *Tree) PodsMemory(machine int64) (limit, used int64, err error) {
	limit, err = t.MemoryLimit(t.Kubepods())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, 0, nil // nobody has made it yet
	case err != nil:
		return 0, 0, err
	case limit <= 0 || machine > 0 && limit > machine:
		return 0, 0, nil
	}
	used, err = t.WorkingSet(t.Kubepods())
	return limit, used, err
}

// MachineMemory is the memory of the machine in bytes.
func (t *Tree) MachineMemory() (int64, error) {
	info, err := fieldsIn(path.Join(t.proc(), "meminfo"), "MemTotal:")
	if err != nil {
		return 0, err
	}
	return info[0] << 10, nil
}

// Running is the number of threads of the whole machine: the fourth field of /proc/loadavg, after its slash.
func (t *Tree) Running() (int64, error) {
	file := path.Join(t.proc(), "loadavg")
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	if words := strings.Fields(string(data)); len(words) >= 4 {
		if _, tasks, ok := strings.Cut(words[3], "/"); ok {
			return strconv.ParseInt(tasks, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s is %.80q, which has no number of tasks", file, data)
}

// PIDLimit is how many threads the machine can have: the smaller of the kernel's limits of process IDs and of threads,
// both read from proc. The error names the files that can't be read. If one of them can be read, limit is its value,
// otherwise 0.
func PIDLimit(proc string) (limit int64, err error) {
	for _, name := range []string{"pid_max", "threads-max"} {
		n, readErr := numberIn(path.Join(proc, "sys/kernel", name))
		switch {
		case readErr != nil:
			err = errors.Join(err, readErr)
		case limit == 0 || n < limit:
			limit = n
		}
	}
	return limit, err
}

// numberIn reads a file that has one number; "max" is math.MaxInt64.
func numberIn(file string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %.80q: %w", file, text, err)
	}
	return n, nil
}

// fieldsIn returns the numbers after the names in a file of lines such as "name 1234", in the order of the names. It is
// an error if one is missing.
func fieldsIn(file string, names ...string) ([]int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	values := make([]int64, len(names))
	for i, name := range names {
		found := false
		for line := range strings.Lines(string(data)) {
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != name {
				continue
			}
			if values[i], err = strconv.ParseInt(words[1], 10, 64); err != nil {
				return nil, fmt.Errorf("%s: %s is %.80q: %w", file, name, words[1], err)
			}
			found = true
			break
		}
		if !found {
			return nil, fmt.Errorf("%s has no %s", file, name)
		}
	}
	return values, nil
}
