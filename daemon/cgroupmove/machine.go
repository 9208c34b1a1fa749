package cgroupmove

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// mountPoint is where the hierarchies are mounted: systemd's and every runtime's convention.
const mountPoint = "/sys/fs/cgroup"

// machine has the cgroup hierarchies as this process sees them.
type machine struct {
	proc  procfs.FS
	self  procfs.Proc
	trees []tree
}

// tree is one mounted hierarchy.
type tree struct {
	// dir is where it is mounted. root is which of its cgroups is seen there, as /proc/<pid>/cgroup names it: not "/" if
	// only a part of the hierarchy is mounted.
	dir, root string
	// controllers are those of a hierarchy of version 1, or its name as name=systemd. Version 2 has none.
	controllers []string
}

// open finds the hierarchies below at; proc is where /proc is mounted. With version 2 there is one. A machine with
// version 1 may have one of version 2 too.
func open(proc, at string) (*machine, error) {
	m := &machine{}
	var err error
	if m.proc, err = procfs.NewFS(proc); err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	if m.self, err = m.proc.Self(); err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	mounts, err := m.self.MountInfo()
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	hierarchies, err := m.self.Cgroups()
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	// The last of several mounts covers the others.
	slices.Reverse(mounts)
	whole := func(i *procfs.MountInfo) bool { return i.MountPoint == at }
	first := slices.IndexFunc(mounts, whole)
	v2 := first >= 0 && mounts[first].FSType == "cgroup2"
	for _, h := range hierarchies {
		i := slices.IndexFunc(mounts, func(i *procfs.MountInfo) bool {
			return (whole(i) || strings.HasPrefix(i.MountPoint, at+"/")) && isOf(i, h.Controllers)
		})
		if i >= 0 && (!v2 || len(h.Controllers) == 0) {
			m.trees = append(m.trees, tree{dir: mounts[i].MountPoint, root: mounts[i].Root, controllers: h.Controllers})
		}
	}
	if len(m.trees) == 0 {
		return nil, fmt.Errorf("find the cgroup hierarchies: none is mounted below %s: mount them there", at)
	}
	return m, nil
}

// isOf reports whether the hierarchy with these controllers is what is mounted. Of those that have a name instead, only
// systemd's counts.
func isOf(i *procfs.MountInfo, controllers []string) bool {
	if len(controllers) == 0 {
		return i.FSType == "cgroup2"
	}
	for _, c := range controllers {
		_, has := i.SuperOptions[c]
		if c == systemdTree {
			has = "name="+i.SuperOptions["name"] == systemdTree
		}
		if !has {
			return false
		}
	}
	return i.FSType == "cgroup"
}

// systemdTree is the hierarchy in which systemd keeps its units on a machine with version 1.
const systemdTree = "name=systemd"

// has reports whether it is the hierarchy of the controller; one of version 2 has all.
func (t *tree) has(controller string) bool {
	return len(t.controllers) == 0 || slices.Contains(t.controllers, controller)
}

// inside is the path of a cgroup below what is mounted; empty for one that is elsewhere.
func (t *tree) inside(cgroup string) string {
	rel, err := filepath.Rel(t.root, cgroup)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return ""
	}
	return path.Join("/", rel)
}

// places are the cgroups of a process, one in each tree. A place is empty if it can't be seen from here.
func (m *machine) places(p procfs.Proc) ([]string, error) {
	lines, err := p.Cgroups()
	if err != nil {
		return nil, fmt.Errorf("find the cgroups of process %d: %w", p.PID, err)
	}
	places := make([]string, len(m.trees))
	for i := range m.trees {
		for _, line := range lines {
			if slices.Equal(line.Controllers, m.trees[i].controllers) {
				places[i] = m.trees[i].inside(line.Path)
			}
		}
	}
	return places, nil
}

// service is the cgroup of the systemd service that has a process with these places; empty for none. A scope, such as
// the session of somebody who has logged in, is none.
func (m *machine) service(places []string) string {
	for i := range m.trees {
		if !m.trees[i].has(systemdTree) {
			continue
		}
		for dir := places[i]; dir != "" && dir != "/"; dir = path.Dir(dir) {
			switch path.Ext(dir) {
			case ".service":
				return dir
			case ".scope":
				return ""
			}
		}
	}
	return ""
}
