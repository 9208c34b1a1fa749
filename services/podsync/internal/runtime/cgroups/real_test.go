package cgroups

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/cri/cgroupname"
)

// real is a manager on this machine's own hierarchies (as root), below a root of the test's own.
func onThisMachine(t testing.TB) *Manager {
	root := fmt.Sprintf("/kubelot-test-%d", os.Getpid())
	m, err := New(Config{
		Driver: driverCgroupfs, Root: root, PerQOS: true, EnforcePods: true,
		CPUCFSQuota: true, CPUCFSQuotaPeriod: 100 * time.Millisecond, PodPidsLimit: 50,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.patience = time.Minute
	t.Cleanup(func() {
		for _, mount := range m.mounts {
			dir := filepath.Join(mount, root)
			kill(dir)
			if err := remove(dir); err != nil {
				t.Errorf("the test left %s: %v", dir, err)
			}
		}
	})
	if err := m.EnsureNode(nil, list("cpu", "2", "memory", "4Gi", "pid", "4000")); err != nil {
		t.Fatal(err)
	}
	return m
}

// files are the control files by what they hold: with version 1 a controller and a file, with version 2 a file.
var files = map[string][3]string{
	"shares": {"cpu", "cpu.shares", "cpu.weight"},
	"quota":  {"cpu", "cpu.cfs_quota_us", "cpu.max"},
	"memory": {"memory", "memory.limit_in_bytes", "memory.max"},
	"pids":   {"pids", "pids.max", "pids.max"},
}

// read is what a control file says.
func read(t *testing.T, m *Manager, n cgroupname.Name, what string) string {
	t.Helper()
	f := files[what]
	file := filepath.Join(m.mounts[f[0]], m.path(n), f[1])
	if m.v2 {
		file = filepath.Join(m.mounts[""], m.path(n), f[2])
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func burstablePod(uid string) *corev1.Pod {
	pod := podOf(container(list("cpu", "250m", "memory", "32Mi"), list("cpu", "500m", "memory", "64Mi")))
	pod.ObjectMeta = metav1.ObjectMeta{UID: types.UID(uid), Name: "p", Namespace: "default"}
	return pod
}

func TestPodOnThisMachine(t *testing.T) {
	m := onThisMachine(t)
	pod := burstablePod("1234-abcd")
	parent, err := m.Create(pod)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := m.podName(pod)
	if parent != m.path(n) || !m.Exists(pod.UID) {
		t.Fatalf("parent is %s, exists %v", parent, m.Exists(pod.UID))
	}
	expect := func(n cgroupname.Name, what, v1, v2 string) {
		t.Helper()
		want := v1
		if m.v2 {
			want = v2
		}
		if got := read(t, m, n, what); got != want {
			t.Errorf("%s of %s is %s, want %s", what, m.path(n), got, want)
		}
	}
	expect(m.kubepods, "shares", "2048", "79")
	expect(m.kubepods, "memory", "4294967296", "4294967296")
	expect(m.kubepods, "pids", "4000", "4000")
	expect(m.kubepods.Child(cgroupname.BestEffort), "shares", "2", "1")
	expect(n, "shares", "256", "10")
	expect(n, "quota", "50000", "50000 100000")
	expect(n, "memory", "67108864", "67108864")
	expect(n, "pids", "50", "50")

	requests := requestsOf(pod, burstablePod("other"), podWith("b", corev1.PodQOSBestEffort))
	if err := m.UpdateQOS(requests, true); err != nil {
		t.Fatal(err)
	}
	expect(m.kubepods.Child(cgroupname.Burstable), "shares", "512", "20")

	// A new process doesn't know yet what runs: what the pods have been given stays theirs.
	again, err := New(m.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.EnsureNode(nil, list("cpu", "2", "memory", "4Gi", "pid", "4000")); err != nil {
		t.Fatal(err)
	}
	expect(m.kubepods.Child(cgroupname.Burstable), "shares", "512", "20")
	for _, step := range []struct {
		pods     []*corev1.Pod
		complete bool
		v1, v2   string
	}{
		{[]*corev1.Pod{pod}, false, "512", "20"},
		{[]*corev1.Pod{pod, pod, pod}, false, "768", "30"},
		{[]*corev1.Pod{pod, pod}, true, "512", "20"},
	} {
		if err := again.UpdateQOS(requestsOf(step.pods...), step.complete); err != nil {
			t.Fatal(err)
		}
		expect(m.kubepods.Child(cgroupname.Burstable), "shares", step.v1, step.v2)
	}

	// The kernel rounds as the pod's status says.
	pod.Spec.Containers[0].Resources.Limits = list("cpu", "333m", "memory", "50M")
	if err := m.Update(pod); err != nil {
		t.Fatal(err)
	}
	expect(n, "memory", "49999872", "49999872")
	expect(n, "quota", "33300", "33300 100000")
	if got := m.Applied(pod); got.Limits.Memory().Value() != 49999872 || got.Limits.Cpu().MilliValue() != 333 {
		t.Errorf("Applied: %v", got)
	}

	pod.Spec.Containers[0].Resources.Limits = list("cpu", "1")
	if err := m.Update(pod); err != nil {
		t.Fatal(err)
	}
	expect(n, "quota", "100000", "100000 100000")
	expect(n, "memory", "9223372036854771712", "max")

	found, err := m.List()
	if err != nil || len(found) != 1 || found[pod.UID] != parent {
		t.Errorf("List: %v, %v", found, err)
	}
	if err := m.Destroy(context.Background(), pod.UID); err != nil || m.Exists(pod.UID) {
		t.Errorf("Destroy: %v, exists %v", err, m.Exists(pod.UID))
	}
	if err := m.Destroy(context.Background(), pod.UID); err != nil {
		t.Errorf("the second Destroy: %v", err)
	}
}

func TestDestroyKillsWhatIsLeft(t *testing.T) {
	m := onThisMachine(t)
	pod := burstablePod("busy")
	if _, err := m.Create(pod); err != nil {
		t.Fatal(err)
	}
	n, _ := m.podName(pod)
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- sleeper.Wait() }()
	// A container's cgroup, and one more below it, as systemd in a container makes them.
	for _, dir := range m.paths(n.Child("container").Child("init.scope")) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	join(t, m, n.Child("container").Child("init.scope"), sleeper.Process.Pid)
	start := time.Now()
	if err := m.Destroy(context.Background(), pod.UID); err != nil || m.Exists(pod.UID) {
		t.Fatalf("Destroy: %v, exists %v", err, m.Exists(pod.UID))
	}
	if err := <-exited; err == nil {
		t.Error("the process was not killed")
	}
	t.Logf("took %s", time.Since(start))
}

func TestDestroyGivesUpWithItsContext(t *testing.T) {
	m := onThisMachine(t)
	pod := burstablePod("stuck")
	if _, err := m.Create(pod); err != nil {
		t.Fatal(err)
	}
	n, _ := m.podName(pod)
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer sleeper.Wait()
	join(t, m, n, sleeper.Process.Pid)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("the daemon stops"))
	err := m.Destroy(ctx, pod.UID)
	if err == nil || !strings.Contains(err.Error(), "pod stuck: the daemon stops") ||
		!strings.Contains(err.Error(), m.path(n)) {
		t.Errorf("Destroy: %v", err)
	}
}

// join puts a process into the cgroup, in one of the hierarchies with version 1.
func join(t *testing.T, m *Manager, n cgroupname.Name, pid int) {
	t.Helper()
	mount := m.mounts["cpu"]
	if m.v2 {
		mount = m.mounts[""]
	}
	if err := cgroups.WriteCgroupProc(filepath.Join(mount, m.path(n)), pid); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkCreate(b *testing.B) {
	m := onThisMachine(b)
	for i := 0; b.Loop(); i++ {
		if _, err := m.Create(burstablePod(fmt.Sprintf("bench-%d", i))); err != nil {
			b.Fatal(err)
		}
	}
}

// What is reserved for others is a limit of their cgroup, which must be there.
func TestReservedOnThisMachine(t *testing.T) {
	m := onThisMachine(t)
	others := m.root.Child("others")
	if err := m.ensure(others, Limits{CPUShares: 2}); err != nil {
		t.Fatal(err)
	}
	r := Reserved{Cgroup: others.Cgroupfs(), List: list("cpu", "500m", "memory", "1Gi", "pid", "300"), Compressible: true}
	before := read(t, m, others, "memory")
	if err := m.Hold(r); err != nil {
		t.Fatal(err)
	}
	if is := read(t, m, others, "memory"); is != before {
		t.Errorf("the memory limit is %s", is)
	}
	r.Compressible = false
	if err := m.Hold(r); err != nil {
		t.Fatal(err)
	}
	shares := map[bool]string{false: "512", true: "20"}[m.v2]
	if is := []string{
		read(t, m, others, "shares"), read(t, m, others, "memory"),
		read(t, m, others, "pids"),
	}; !slices.Equal(is, []string{shares, "1073741824", "300"}) {
		t.Errorf("shares, memory and processes are %v", is)
	}
	r.Cgroup = m.root.Child("absent").Cgroupfs()
	if err := m.Hold(r); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), r.Cgroup) {
		t.Errorf("a cgroup that isn't there: %v", err)
	}
}

// requestsOf is what these pods request together.
func requestsOf(pods ...*corev1.Pod) (sum Requests) {
	for _, p := range pods {
		sum.Add(RequestsOf(p))
	}
	return sum
}
