package bed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mount is a line of /proc/self/mountinfo.
type mount struct {
	point  string
	fstype string
	root   string // what of the file system is mounted
}

func (m mount) isCgroup() bool { return m.fstype == "cgroup" || m.fstype == "cgroup2" }

func mounts() ([]mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return parseMounts(string(data)), nil
}

// parseMounts reads the format of proc(5): the root is the fourth field, the mount point the fifth,
// the type follows a lone dash after a variable number of optional fields.
func parseMounts(info string) []mount {
	var all []mount
	for line := range strings.Lines(info) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 5 || dash+1 >= len(fields) {
			continue
		}
		all = append(all, mount{point: unescape(fields[4]), fstype: fields[dash+1], root: unescape(fields[3])})
	}
	return all
}

// unescape undoes mountinfo's octal escapes of blanks and backslashes.
func unescape(path string) string {
	var out strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+3 < len(path) {
			if code, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(path[i])
	}
	return out.String()
}

// hierarchies returns the mounts of the cgroup hierarchies: one with
// v2 alone, one per controller with v1 (and perhaps an extra v2 one).
func hierarchies() ([]mount, error) {
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(m mount) bool { return !m.isCgroup() }), nil
}

func (b *Bed) createCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, m := range all {
		dir := b.cgroupIn(m)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create cgroup: %w", err)
		}
		// A new v1 cpuset is empty, and nothing can be put into it.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inherit(m.point, dir, file); err != nil {
				return fmt.Errorf("create cgroup %s: %w", dir, err)
			}
		}
	}
	return nil
}

func inherit(parent, child, file string) error {
	if !exists(filepath.Join(parent, "cpuset.cpu_exclusive")) {
		return nil
	}
	value, err := os.ReadFile(filepath.Join(parent, file))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(child, file), value, 0o644)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cgroupDirs lists the bed's cgroups, deepest first.
func (b *Bed) cgroupDirs() ([]string, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, m := range all {
		_ = filepath.WalkDir(b.cgroupIn(m), func(path string, d fs.DirEntry, err error) error {
			// An error is a cgroup that went away under the walk, or never was.
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
	}
	slices.SortFunc(dirs, func(a, b string) int { return len(b) - len(a) })
	return dirs, nil
}

func (b *Bed) cgroupPIDs() ([]int, error) {
	dirs, err := b.cgroupDirs()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// removeCgroups retries: the kernel reports a cgroup busy until its last
// process has been reaped.
func (b *Bed) removeCgroups() error {
	deadline := time.Now().Add(patience)
	for {
		dirs, err := b.cgroupDirs()
		if err != nil || len(dirs) == 0 {
			return err
		}
		var errs []error
		for _, dir := range dirs {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove cgroup: %w", err))
			}
		}
		if err := errors.Join(errs...); err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
