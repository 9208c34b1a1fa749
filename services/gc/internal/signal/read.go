package signal

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"time"

	"kubelot.dev/cri/cgroup"
	"kubelot.dev/daemon/disk"
	"kubelot.dev/services/gc/internal/evict"
)

// Reader reads the signals of a machine.
type Reader struct {
	proc    string
	cgroups *cgroup.Tree
}

// Filesystems are paths on the filesystems: that of the root directory, that of the images, and that of the containers'
// writable layers. An empty one isn't known.
type Filesystems struct{ Node, Image, Container string }

// New is a reader of the machine below fsRoot ("/" but in tests), with the configured cgroupDriver and cgroupRoot.
func New(fsRoot, driver, root string) (*Reader, error) {
	tree, err := cgroup.New(fsRoot, driver, root)
	if err != nil {
		return nil, err
	}
	return &Reader{proc: path.Join(fsRoot, "/proc"), cgroups: tree}, nil
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
	total, err := r.cgroups.MachineMemory()
	used, usedErr := r.cgroups.WorkingSet("/")
	out.set(evict.MemoryAvailable, max(total-used, 0), total, cmp.Or(err, usedErr))
	if limit, used, err := r.cgroups.PodsMemory(total); err != nil || limit > 0 {
		out.set(evict.AllocatableAvailable, max(limit-used, 0), limit, err)
	}
	most, err := cgroup.PIDLimit(r.proc)
	if most > 0 {
		err = nil // one of the kernel's two bounds is enough
	}
	running, runningErr := r.cgroups.Running()
	out.set(evict.PIDAvailable, most-running, most, cmp.Or(err, runningErr))
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
		s, err := paths.stat(f.path)
		out.set(f.bytes, int64(s.Available), int64(s.Capacity), err)
		// Filesystems without a fixed number of inodes, such as btrfs, report 0.
		if err == nil && s.Inodes > 0 {
			out.set(f.inodes, int64(s.InodesFree), int64(s.Inodes), nil)
		}
	}
	return out.obs, errors.Join(out.errs...)
}

// stat measures a filesystem. The root directory is made by podsync, perhaps after gc has begun.
func (f Filesystems) stat(path string) (disk.Filesystem, error) {
	if path == f.Node {
		return disk.StatToBe(path)
	}
	return disk.Stat(path)
}

// Layout finds what shares a filesystem, by the devices of their mounts. split is true if containers have a filesystem
// of their own. On the root directory's filesystem its thresholds stand for theirs.
func Layout(paths Filesystems) (layout evict.Layout, split bool, err error) {
	var devices [3]uint64
	for i, path := range []string{paths.Node, paths.Image, paths.Container} {
		s, err := paths.stat(path)
		if err != nil {
			return evict.Layout{}, false, err
		}
		devices[i] = disk.Superblock(path, s.Device)
	}
	node, image, container := devices[0], devices[1], devices[2]
	layout = evict.Layout{ImageFS: image != node, ContainerFS: container != image}
	return layout, layout.ContainerFS && container != node, nil
}
