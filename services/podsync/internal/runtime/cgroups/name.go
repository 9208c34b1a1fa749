package cgroups

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/cri/cgroupname"
	"kubelot.dev/daemon/podspec"
)

// layout is where cgroups are.
type layout struct {
	// driver is "systemd" or "cgroupfs", by which their names are written.
	driver   string
	root     cgroupname.Name
	kubepods cgroupname.Name
	// mounts are the hierarchies by controller; with version 2 there is one, under "".
	mounts map[string]string
}

// classes are the cgroups that hold pods.
func (y *layout) classes() []cgroupname.Name { return cgroupname.Classes(y.root) }

// podName is the pod's cgroup.
func (y *layout) podName(pod *corev1.Pod) (cgroupname.Name, error) {
	part, err := cgroupname.PodPart(string(pod.UID))
	if err != nil {
		return nil, err
	}
	switch podspec.QOSClass(pod) {
	case corev1.PodQOSBurstable:
		return y.kubepods.Child(cgroupname.Burstable).Child(part), nil
	case corev1.PodQOSBestEffort:
		return y.kubepods.Child(cgroupname.BestEffort).Child(part), nil
	default:
		return y.kubepods.Child(part), nil
	}
}

// path is n as the driver writes it, relative to a hierarchy.
func (y *layout) path(n cgroupname.Name) string { return n.Path(y.driver) }

// podUID is the UID in a directory's name below the class's cgroup.
func (y *layout) podUID(class cgroupname.Name, dir string) (types.UID, bool) {
	uid, ok := cgroupname.PodUID(class, y.driver, dir)
	return types.UID(uid), ok
}

// paths are the cgroup's directories by controller.
func (y *layout) paths(n cgroupname.Name) map[string]string {
	p := make(map[string]string, len(y.mounts))
	for controller, mount := range y.mounts {
		p[controller] = filepath.Join(mount, y.path(n))
	}
	return p
}

// podDirs are all directories that the pod's cgroup can have.
func (y *layout) podDirs(uid types.UID) []string {
	part, err := cgroupname.PodPart(string(uid))
	if err != nil {
		return nil
	}
	var dirs []string
	for _, class := range y.classes() {
		for _, dir := range y.paths(class.Child(part)) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// reservedName reads the name that the configuration gives.
func (y *layout) reservedName(cgroup string) (cgroupname.Name, error) {
	if y.driver != driverSystemd {
		return cgroupname.ParsePath(cgroup)
	}
	return cgroupname.ParseSlice(cgroup)
}
