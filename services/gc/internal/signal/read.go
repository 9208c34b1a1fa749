package signal

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/cri/cgroupname"
	"kubelot.dev/daemon/kernfile"
	"kubelot.dev/services/gc/internal/evict"
)

// Reader knows where the signals are.
type Reader struct {
	// Proc is /proc.
	Proc string
	// Memory is the root of the cgroup hierarchy that has memory; Unified tells that it is v2.
	Memory  string
	Unified bool
	// Driver and Root are cgroupDriver and cgroupRoot, below which the pods' cgroup is.
	Driver string
	Root   cgroupname.Name
}

// Filesystems are paths on the filesystems: that of the root directory, that of the images, and that of the containers'
// writable layers. An empty one isn't known.
type Filesystems struct{ Node, Image, Container string }

// New is a reader of this machine, with the configured cgroupDriver and cgroupRoot.
func New(driver, root string) (*Reader, error) {
	name, err := cgroupname.ParseRoot(root)
	if err != nil {
		return nil, err
	}
	r := &Reader{Proc: "/proc", Memory: "/sys/fs/cgroup", Unified: true, Driver: driver, Root: name}
	var stat unix.Statfs_t
	if err := unix.Statfs(r.Memory, &stat); err == nil && stat.Type != unix.CGROUP2_SUPER_MAGIC {
		r.Memory, r.Unified = filepath.Join(r.Memory, "memory"), false
	}
	return r, nil
}

// pods is the cgroup of all pods.
func (r *Reader) pods() string {
	driver := cgroupname.Driver(r.Memory, r.Root, r.Driver)
	return filepath.Join(r.Memory, r.Root.Child(cgroupname.Kubepods).Path(driver))
}

// reading is what was read.
type reading struct {
	now  time.Time
	obs  evict.Observations
	errs []error
}

func (r *reading) set(s evict.Signal, available, capacity int64, err error) {
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("read %s: %w", s, err))
		return
	}
	r.obs[s] = evict.Observation{Available: available, Capacity: capacity, At: r.now}
}

// Read reads the signals of memory and processes, and never waits for a disk.
func (r *Reader) Read(now time.Time) (evict.Observations, error) {
	out := reading{now: now, obs: evict.Observations{}}
	set := out.set
	var total int64
	info, err := kernfile.Fields(filepath.Join(r.Proc, "meminfo"), "MemTotal:")
	if err == nil {
		total = info[0] << 10
	}
	used, usedErr := r.rootWorkingSet()
	set(evict.MemoryAvailable, max(total-used, 0), total, cmp.Or(err, usedErr))
	if limit, used, err := r.podsMemory(total); err != nil || limit > 0 {
		set(evict.AllocatableAvailable, max(limit-used, 0), limit, err)
	}
	running, most, err := r.processes()
	set(evict.PIDAvailable, most-running, most, err)
	return out.obs, errors.Join(out.errs...)
}

// Disks reads the signals of the filesystems. One that hangs doesn't come back.
func (r *Reader) Disks(now time.Time, paths Filesystems) (evict.Observations, error) {
	out := reading{now: now, obs: evict.Observations{}}
	for _, f := range []struct {
		path          string
		bytes, inodes evict.Signal
	}{
		{paths.Node, evict.NodeFSAvailable, evict.NodeFSInodes},
		{paths.Image, evict.ImageFSAvailable, evict.ImageFSInodes},
		{paths.Container, evict.ContainerFSAvailable, evict.ContainerFSInodes},
	} {
		if f.path == "" {
			continue
		}
		var s unix.Statfs_t
		err := unix.Statfs(f.path, &s)
		if err != nil {
			err = &os.PathError{Op: "statfs", Path: f.path, Err: err}
		}
		out.set(f.bytes, int64(s.Bavail)*s.Bsize, int64(s.Blocks)*s.Bsize, err)
		// Filesystems without a fixed number of inodes, such as btrfs, tell of none.
		if err == nil && s.Files > 0 {
			out.set(f.inodes, int64(s.Ffree), int64(s.Files), nil)
		}
	}
	return out.obs, errors.Join(out.errs...)
}

// rootWorkingSet is what the machine uses less what it can drop at once. The root of v2 has no figure of its own for usage: it is what v1
// counts there, anonymous memory and files, and neither huge pages nor the kernel's own memory, most of which it gives back under pressure.
func (r *Reader) rootWorkingSet() (int64, error) {
	if !r.Unified {
		return r.workingSet(r.Memory)
	}
	v, err := kernfile.Fields(filepath.Join(r.Memory, "memory.stat"), "anon", "file", "inactive_file")
	if err != nil {
		return 0, err
	}
	return max(v[0]+v[1]-v[2], 0), nil
}

func (r *Reader) workingSet(group string) (int64, error) {
	usage, inactive := "memory.usage_in_bytes", "total_inactive_file"
	if r.Unified {
		usage, inactive = "memory.current", "inactive_file"
	}
	used, err := kernfile.Number(filepath.Join(group, usage))
	if err != nil {
		return 0, err
	}
	values, err := kernfile.Fields(filepath.Join(group, "memory.stat"), inactive)
	if err != nil {
		return 0, err
	}
	return max(used-values[0], 0), nil
}

// podsMemory is the limit of the pods' cgroup and what they use; a limit of 0 means that there is none.
func (r *Reader) podsMemory(total int64) (limit, used int64, err error) {
	name := "memory.limit_in_bytes"
	if r.Unified {
		name = "memory.max"
	}
	pods := r.pods()
	limit, err = kernfile.Number(filepath.Join(pods, name))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return 0, 0, nil // podsync hasn't made it yet
	case err != nil:
		return 0, 0, err
	case limit <= 0 || total > 0 && limit > total:
		return 0, 0, nil
	}
	used, err = r.workingSet(pods)
	return limit, used, err
}

// processes are the tasks of the machine and how many there can be.
func (r *Reader) processes() (running, most int64, err error) {
	most = math.MaxInt64
	for _, name := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		if n, err := kernfile.Number(filepath.Join(r.Proc, name)); err == nil {
			most = min(most, n)
		}
	}
	if most == math.MaxInt64 {
		return 0, 0, errors.New("neither kernel.pid_max nor kernel.threads-max can be read")
	}
	path := filepath.Join(r.Proc, "loadavg")
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	if words := strings.Fields(string(data)); len(words) >= 4 {
		if _, tasks, ok := strings.Cut(words[3], "/"); ok {
			running, err = strconv.ParseInt(tasks, 10, 64)
			return running, most, err
		}
	}
	return 0, 0, fmt.Errorf("%s is %.80q, which has no number of tasks", path, data)
}

// Layout tells what shares a filesystem, by the numbers of the devices.
func Layout(paths Filesystems) (evict.Layout, error) {
	var devices [3]uint64
	for i, path := range []string{paths.Node, paths.Image, paths.Container} {
		var s unix.Stat_t
		if err := unix.Stat(path, &s); err != nil {
			return evict.Layout{}, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		devices[i] = s.Dev
	}
	return evict.Layout{ImageFS: devices[1] != devices[0], ContainerFS: devices[2] != devices[1]}, nil
}
