package cgroups

import (
	"path"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func podWith(uid string, class corev1.PodQOSClass) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Status: corev1.PodStatus{QOSClass: class}}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		driver, root string
		pod          *corev1.Pod
		path         string
	}{
		{
			driverCgroupfs, "", podWith("12-34", corev1.PodQOSBurstable),
			"/kubepods/burstable/pod12-34",
		},
		{
			driverCgroupfs, "/a/b", podWith("12-34", corev1.PodQOSGuaranteed), "/a/b/kubepods/pod12-34",
		},
		{
			driverSystemd, "/", podWith("12-34", corev1.PodQOSBestEffort),
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod12_34.slice",
		},
		{
			driverSystemd, "/work-loads", podWith("12-34", corev1.PodQOSGuaranteed),
			"/work_loads.slice/work_loads-kubepods.slice/work_loads-kubepods-pod12_34.slice",
		},
	} {
		m, err := newManager(Config{Driver: c.driver, Root: c.root, PerQOS: true}, true)
		if err != nil {
			t.Fatal(err)
		}
		n, err := m.podName(c.pod)
		if err != nil || m.path(n) != c.path || m.Parent(c.pod) != c.path {
			t.Errorf("%s %s: path %s, parent %s, %v", c.driver, c.root, m.path(n), m.Parent(c.pod), err)
		}
		class, dir := n[:len(n)-1], n[len(n)-1]
		if c.driver == driverSystemd {
			dir = path.Base(c.path)
		}
		if uid, ok := m.podUID(class, dir); !ok || uid != c.pod.UID {
			t.Errorf("%s: read back %q, %v", dir, uid, ok)
		}
		if _, ok := m.podUID(class, "kubepods-burstable.slice"); ok {
			t.Error("a QoS class was taken for a pod")
		}
	}
}

func TestEvilNames(t *testing.T) {
	m, err := newManager(Config{Driver: driverCgroupfs, PerQOS: true}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"", "..", "../../../x", "a/b", "a_b", "a\n"} {
		pod := podWith(uid, corev1.PodQOSBurstable)
		if parent, err := m.Create(pod); err == nil || parent != "" {
			t.Errorf("UID %q gave the cgroup %q", uid, parent)
		}
		if dirs := m.podDirs(types.UID(uid)); len(dirs) > 0 {
			t.Errorf("UID %q would remove %v", uid, dirs)
		}
	}
	for _, root := range []string{"/..", "/a_b", "/a/../b"} {
		if _, err := newManager(Config{Driver: driverCgroupfs, Root: root}, true); err == nil {
			t.Errorf("cgroupRoot %q was accepted", root)
		}
	}
	if _, err := New(Config{Driver: "cgroup"}); err == nil {
		t.Error("the driver \"cgroup\" was accepted")
	}
}

func TestWithoutPodCgroups(t *testing.T) {
	m, err := newManager(Config{Driver: driverCgroupfs, Root: "/a"}, true)
	if err != nil {
		t.Fatal(err)
	}
	pod := podWith("1", corev1.PodQOSBurstable)
	if parent, err := m.Create(pod); err != nil || parent != "" {
		t.Errorf("parent is %q, %v", parent, err)
	}
	if err := m.EnsureNode(nil, nil); err != nil {
		t.Error(err)
	}
}
