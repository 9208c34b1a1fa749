package cgroups

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/cri/cgroupname"
	"kubelot.dev/services/podsync/internal/qos"
)

// classes are the cgroups that hold pods.
func (m *Manager) classes() []cgroupname.Name { return cgroupname.Classes(m.root) }

// podName is the pod's cgroup.
func (m *Manager) podName(pod *corev1.Pod) (cgroupname.Name, error) {
	part, err := cgroupname.PodPart(string(pod.UID))
	if err != nil {
		return nil, err
	}
	switch qos.Class(pod) {
	case corev1.PodQOSBurstable:
		return m.kubepods.Child(cgroupname.Burstable).Child(part), nil
	case corev1.PodQOSBestEffort:
		return m.kubepods.Child(cgroupname.BestEffort).Child(part), nil
	default:
		return m.kubepods.Child(part), nil
	}
}

// path is n as the driver writes it, relative to a hierarchy.
func (m *Manager) path(n cgroupname.Name) string { return n.Path(m.cfg.Driver) }

// podUID is the UID in a directory's name below the class's cgroup.
func (m *Manager) podUID(class cgroupname.Name, dir string) (types.UID, bool) {
	uid, ok := cgroupname.PodUID(class, m.cfg.Driver, dir)
	return types.UID(uid), ok
}
