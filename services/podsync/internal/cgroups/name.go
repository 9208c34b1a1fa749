package cgroups

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/services/podsync/internal/qos"
)

const (
	kubepods     = "kubepods"
	burstable    = "burstable"
	bestEffort   = "besteffort"
	podPrefix    = "pod"
	sliceSuffix  = ".slice"
	systemdSlash = "-"
)

// name is a cgroup as the list of its parts from the root, whichever the driver.
type name []string

// child is the cgroup below n.
func (n name) child(part string) name { return append(append(name{}, n...), part) }

// cgroupfs is the path as the cgroupfs driver has it: /kubepods/burstable/pod1234.
func (n name) cgroupfs() string { return "/" + path.Join(n...) }

// systemd is the path as the systemd driver has it. A slice's name repeats those of its parents, joined by
// dashes, hence a dash within a part becomes an underscore (systemd.slice(5)):
// /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice.
func (n name) systemd() string {
	p, prefix := "/", ""
	for _, part := range n {
		prefix += strings.ReplaceAll(part, systemdSlash, "_")
		p = path.Join(p, prefix+sliceSuffix)
		prefix += systemdSlash
	}
	return p
}

// parseRoot splits the configured root, which is written as the cgroupfs driver writes it.
func parseRoot(root string) (name, error) {
	var n name
	for part := range strings.SplitSeq(root, "/") {
		switch {
		case part == "":
			continue
		case part == "." || part == ".." || strings.Contains(part, "_"):
			return nil, fmt.Errorf("cgroupRoot %q: the part %q is not allowed: "+
				"use names without underscores, such as /workloads", root, part)
		}
		n = append(n, part)
	}
	return n, nil
}

// podPart is the last part of a pod's cgroup. A UID from a manifest can be anything; what isn't a single
// plain name never becomes part of a path.
func podPart(uid types.UID) (string, error) {
	s := string(uid)
	if s == "" || strings.ContainsAny(s, "/_\x00\n") || strings.Contains(s, "..") {
		return "", fmt.Errorf("the pod UID %q can't name a cgroup: remove metadata.uid from the manifest", s)
	}
	return podPrefix + s, nil
}

// classes are the cgroups that hold pods: Guaranteed ones are directly below kubepods.
func (m *Manager) classes() []name {
	return []name{m.kubepods, m.kubepods.child(burstable), m.kubepods.child(bestEffort)}
}

// podName is the pod's cgroup.
func (m *Manager) podName(pod *corev1.Pod) (name, error) {
	part, err := podPart(pod.UID)
	if err != nil {
		return nil, err
	}
	switch qos.Class(pod) {
	case corev1.PodQOSBurstable:
		return m.kubepods.child(burstable).child(part), nil
	case corev1.PodQOSBestEffort:
		return m.kubepods.child(bestEffort).child(part), nil
	default:
		return m.kubepods.child(part), nil
	}
}

// path is n as the driver writes it, relative to a hierarchy.
func (m *Manager) path(n name) string {
	if m.cfg.Driver == DriverSystemd {
		return n.systemd()
	}
	return n.cgroupfs()
}

// podUID is the UID in a directory's name below the class's cgroup.
func (m *Manager) podUID(class name, dir string) (types.UID, bool) {
	if m.cfg.Driver != DriverSystemd {
		uid, ok := strings.CutPrefix(dir, podPrefix)
		return types.UID(uid), ok && uid != ""
	}
	prefix := strings.TrimSuffix(path.Base(class.systemd()), sliceSuffix) + systemdSlash + podPrefix
	uid, ok := strings.CutPrefix(strings.TrimSuffix(dir, sliceSuffix), prefix)
	if !ok || uid == "" || !strings.HasSuffix(dir, sliceSuffix) {
		return "", false
	}
	return types.UID(strings.ReplaceAll(uid, "_", systemdSlash)), true
}
