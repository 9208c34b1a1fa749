// Package cgroupname has the names of the cgroups that pods and containers run in: those that a kubelet 1.36 gives to
// pods, and those that runtimes give to containers below them. Of cgroups it reads only whether they are there.
package cgroupname

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// The drivers, as KubeletConfiguration and the CRI call them.
const (
	DriverSystemd  = "systemd"
	DriverCgroupfs = "cgroupfs"
)

// The parts of the tree that pods are in.
const (
	Kubepods   = "kubepods"
	Burstable  = "burstable"
	BestEffort = "besteffort"
)

const (
	podPrefix    = "pod"
	sliceSuffix  = ".slice"
	scopeSuffix  = ".scope"
	systemdSlash = "-"
	// idLength is the length of the container IDs of containerd and CRI-O.
	idLength = 64
)

// Name is a cgroup as the list of its parts from the root, with any driver.
type Name []string

// Child is the cgroup below n.
func (n Name) Child(part string) Name { return append(append(Name{}, n...), part) }

// Path is n as the driver writes it, relative to a hierarchy.
func (n Name) Path(driver string) string {
	if driver == DriverSystemd {
		return n.systemd()
	}
	return n.Cgroupfs()
}

// Cgroupfs is the path as the cgroupfs driver has it: /kubepods/burstable/pod1234.
func (n Name) Cgroupfs() string { return "/" + path.Join(n...) }

// systemd is the path as the systemd driver has it. A slice's name repeats those of its parents, joined by
// dashes, so a dash within a part becomes an underscore (systemd.slice(5)):
// /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice.
func (n Name) systemd() string {
	p, prefix := "/", ""
	for _, part := range n {
		prefix += strings.ReplaceAll(part, systemdSlash, "_")
		p = path.Join(p, prefix+sliceSuffix)
		prefix += systemdSlash
	}
	return p
}

// ParseRoot splits the configured root (cgroupRoot), which is written as the cgroupfs driver writes it. It must have a
// name with either driver.
func ParseRoot(root string) (Name, error) {
	n, err := ParsePath(root)
	if err == nil && strings.Contains(root, "_") {
		err = fmt.Errorf("%q has an underscore: use names without, such as /workloads", root)
	}
	if err != nil {
		return nil, fmt.Errorf("cgroupRoot: %w", err)
	}
	return n, nil
}

// ParsePath splits the path of a cgroup as the cgroupfs driver writes it.
func ParsePath(cgroup string) (Name, error) {
	var n Name
	for part := range strings.SplitSeq(cgroup, "/") {
		switch part {
		case "":
			continue
		case ".", "..":
			return nil, fmt.Errorf("the part %q of %q is not allowed: use a path such as /workloads", part, cgroup)
		}
		n = append(n, part)
	}
	return n, nil
}

// ParseSlice reads the name of a systemd slice, or a path to it, of which the last part says all: it is the inverse of
// Path with the systemd driver. The root slice gives an empty name.
func ParseSlice(slice string) (Name, error) {
	name := strings.TrimSuffix(path.Base(slice), sliceSuffix)
	if name == systemdSlash {
		return nil, nil
	}
	var n Name
	for part := range strings.SplitSeq(name, systemdSlash) {
		if part == "" || part == "." || part == ".." || part == "/" {
			return nil, fmt.Errorf("%q is no name of a systemd slice: use one such as kube-daemons.slice", slice)
		}
		n = append(n, strings.ReplaceAll(part, "_", systemdSlash))
	}
	return n, nil
}

// Driver is the driver whose names the pods' cgroups have below the hierarchy mounted there: the configured one, unless
// only the other's are there, because a driver that the runtime reports wins (KEP-4033).
func Driver(hierarchy string, root Name, configured string) string {
	there := func(driver string) bool {
		_, err := os.Stat(filepath.Join(hierarchy, root.Child(Kubepods).Path(driver)))
		return err == nil
	}
	for _, driver := range []string{configured, DriverSystemd, DriverCgroupfs} {
		if driver != "" && there(driver) {
			return driver
		}
	}
	return configured
}

// Classes are the cgroups that hold pods: Guaranteed ones are directly below kubepods.
func Classes(root Name) []Name {
	kubepods := root.Child(Kubepods)
	return []Name{kubepods, kubepods.Child(Burstable), kubepods.Child(BestEffort)}
}

// PodPart is the last part of a pod's cgroup. A UID from a manifest can be anything; what isn't a single
// plain name never becomes part of a path.
func PodPart(uid string) (string, error) {
	if uid == "" || strings.ContainsAny(uid, "/_\x00\n") || strings.Contains(uid, "..") {
		return "", fmt.Errorf("the pod UID %q can't name a cgroup: remove metadata.uid from the manifest", uid)
	}
	return podPrefix + uid, nil
}

// PodUID is the UID in a directory's name below the class's cgroup.
func PodUID(class Name, driver, dir string) (string, bool) {
	if driver != DriverSystemd {
		uid, ok := strings.CutPrefix(dir, podPrefix)
		return uid, ok && uid != ""
	}
	prefix := strings.TrimSuffix(path.Base(class.systemd()), sliceSuffix) + systemdSlash + podPrefix
	uid, ok := strings.CutPrefix(strings.TrimSuffix(dir, sliceSuffix), prefix)
	if !ok || uid == "" || !strings.HasSuffix(dir, sliceSuffix) {
		return "", false
	}
	return strings.ReplaceAll(uid, "_", systemdSlash), true
}

// ContainerID is the ID in the name of a container's or sandbox's cgroup, which is the last part of path. With the
// cgroupfs driver it is the ID itself (containerd) or crio-<id>, with systemd a scope such as cri-containerd-<id>.scope
// or crio-<id>.scope.
func ContainerID(cgroup string) (string, bool) {
	name := strings.TrimSuffix(path.Base(cgroup), scopeSuffix)
	name = name[strings.LastIndex(name, systemdSlash)+1:]
	if len(name) != idLength || strings.Trim(name, "0123456789abcdef") != "" {
		return "", false
	}
	return name, true
}
