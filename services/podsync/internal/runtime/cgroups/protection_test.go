package cgroups

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/cri/cgroupname"
	"kubelot.dev/services/podsync/internal/node/qos"
)

func TestProtectionOfPods(t *testing.T) {
	full := list("cpu", "500m", "memory", "64Mi")
	overhead := podOf(container(full, full))
	overhead.Spec.Overhead = list("memory", "1Mi")
	always := corev1.ContainerRestartPolicyAlways
	sidecar := podOf(container(list("memory", "10Mi"), nil))
	sidecar.Spec.InitContainers = []corev1.Container{
		container(list("memory", "5Mi"), nil), container(list("memory", "100Mi"), nil),
	}
	sidecar.Spec.InitContainers[0].RestartPolicy = &always
	podLevel := podOf(container(nil, nil))
	podLevel.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "7Mi"), Limits: list("memory", "9Mi")}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want map[string]string
	}{
		"best effort":               {podOf(container(nil, nil)), nil},
		"burstable, CPU only":       {podOf(container(list("cpu", "1"), nil)), nil},
		"guaranteed":                {podOf(container(full, full), container(full, full)), unified("memory.min", 134217728)},
		"guaranteed, with overhead": {overhead, unified("memory.min", 68157440)},
		"burstable":                 {podOf(container(list("memory", "32Mi"), nil)), unified("memory.low", 33554432)},
		"burstable, one container":  {podOf(container(full, full), container(nil, nil)), unified("memory.low", 67108864)},
		"a large init container":    {sidecar, unified("memory.low", 110100480)}, // 100 and 5 Mi
		"the pod as a whole":        {podLevel, unified("memory.low", 7340032)},
	} {
		for _, p := range []Protection{{On: true, Tiered: true}, {On: true}, {Tiered: true}, {}} {
			want := c.want
			if !p.On || !p.Tiered {
				want = nil
			}
			if got := LimitsOf(c.pod, Config{Memory: p}).Unified; !maps.Equal(got, want) {
				t.Errorf("%s, gate %t, tiered %t: %v, want %v", name, p.On, p.Tiered, got, want)
			}
		}
	}
}

func TestProtectionOfWhatIsReserved(t *testing.T) {
	for name, c := range map[string]struct {
		reserved Reserved
		on       bool
		want     map[string]string
	}{
		"with the gate":        {Reserved{List: list("memory", "1Gi", "cpu", "1")}, true, unified("memory.min", 1073741824)},
		"without":              {Reserved{List: list("memory", "1Gi")}, false, nil},
		"no memory":            {Reserved{List: list("cpu", "1")}, true, nil},
		"its share of the CPU": {Reserved{List: list("memory", "1Gi"), Compressible: true}, true, nil},
	} {
		if got := reservedLimits(c.reserved, Protection{On: c.on}).Unified; !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// onVersion2 is a manager that notes what it would write on a machine with cgroup v2.
func onVersion2(t *testing.T, p Protection) (m *Manager, written func() []string) {
	t.Helper()
	m, err := newManager(Config{Driver: driverCgroupfs, PerQOS: true, Memory: p}, true)
	if err != nil {
		t.Fatal(err)
	}
	m.mounts[""] = t.TempDir()
	var notes []string
	m.qos.write = func(n cgroupname.Name, l Limits) error {
		for _, file := range slices.Sorted(maps.Keys(l.Unified)) {
			notes = append(notes, fmt.Sprintf("%s %s=%s", m.path(n), file, l.Unified[file]))
		}
		if l.CPUShares != 0 {
			notes = append(notes, fmt.Sprintf("%s shares=%d", m.path(n), l.CPUShares))
		}
		return nil
	}
	return m, func() []string {
		now := notes
		notes = nil
		return now
	}
}

func TestClassesProtectWhatTheirPodsRequest(t *testing.T) {
	burstable := burstablePod("b") // 250m, 32Mi
	full := list("cpu", "500m", "memory", "64Mi")
	guaranteed := podOf(container(full, full))
	type step struct {
		pods     []*corev1.Pod
		complete bool
		want     []string
	}
	one := []*corev1.Pod{burstable}
	both := []*corev1.Pod{burstable, guaranteed, podWith("e", corev1.PodQOSBestEffort)}
	shares := "/kubepods/burstable shares=256"
	for name, c := range map[string]struct {
		is    Protection
		found protected // by the first step
		steps []step
	}{
		"from nothing": {Protection{On: true, Tiered: true}, protected{}, []step{
			{nil, true, nil},
			{one, true, []string{"/kubepods memory.min=33554432", "/kubepods/burstable memory.low=33554432", shares}},
			{one, true, nil},
			{both, true, []string{"/kubepods memory.min=100663296"}},
			{nil, true, []string{"/kubepods memory.min=0", "/kubepods/burstable memory.low=0", "/kubepods/burstable shares=2"}},
		}},
		"after a restart": {Protection{On: true, Tiered: true}, protected{all: 96 << 20, burstable: 32 << 20}, []step{
			{nil, false, nil},
			{one, false, []string{shares}},
			{both, true, nil},
			{one, true, []string{"/kubepods memory.min=33554432"}},
		}},
		"after something that is no number": {Protection{On: true, Tiered: true}, protected{-1, -1}, []step{
			{nil, false, []string{"/kubepods memory.min=0", "/kubepods/burstable memory.low=0"}},
		}},
		"the policy has changed": {Protection{On: true}, protected{all: 96 << 20, burstable: 32 << 20}, []step{
			{one, false, []string{"/kubepods memory.min=0", "/kubepods/burstable memory.low=0", shares}},
			{both, true, nil},
		}},
		"without the gate": {Protection{Tiered: true}, protected{}, []step{{both, true, []string{shares}}}},
	} {
		m, written := onVersion2(t, c.is)
		m.qos.has = given{shares: minShares, memory: c.found}
		for i, s := range c.steps {
			if err := m.UpdateQOS(requestsOf(s.pods...), s.complete); err != nil {
				t.Fatal(err)
			}
			if got := written(); !slices.Equal(got, s.want) {
				t.Errorf("%s, step %d: written is %q, want %q", name, i, got, s.want)
			}
		}
	}
}

func TestWhatIsProtectedIsReported(t *testing.T) {
	var hard, soft int64 = -1, -1
	report := func(guaranteed, burstable int64) { hard, soft = guaranteed, burstable }
	r := Requests{GuaranteedMemory: 5, BurstableMemory: 7}
	for _, c := range []struct {
		is         Protection
		hard, soft int64
	}{
		{Protection{Report: report}, -1, -1},
		{Protection{On: true, Report: report}, 0, 0},
		{Protection{On: true, Tiered: true, Report: report}, 5, 7},
	} {
		m, _ := onVersion2(t, c.is)
		if err := m.UpdateQOS(r, true); err != nil || hard != c.hard || soft != c.soft {
			t.Errorf("gate %t, tiered %t: %v, reported are %d and %d, want %d and %d", c.is.On, c.is.Tiered, err, hard, soft,
				c.hard, c.soft)
		}
	}
}

func TestProtectionIsFound(t *testing.T) {
	for text, want := range map[string]int64{"0\n": 0, "33554432\n": 33554432, "max\n": -1} {
		m, _ := onVersion2(t, Protection{On: true})
		for file, dir := range map[string]string{qos.MemoryMin: "kubepods", qos.MemoryLow: "kubepods/burstable"} {
			dir := filepath.Join(m.mounts[""], dir)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.qos.found().memory; got != (protected{want, want}) {
			t.Errorf("%q: %+v, want %d", text, got, want)
		}
	}
	m, _ := onVersion2(t, Protection{On: true})
	if got := m.qos.found().memory; got != (protected{}) {
		t.Errorf("without the cgroups: %+v", got)
	}
}

// The gate is one of cgroup v2. With version 1 the library refuses to write such values at all.
func TestMemoryQoSOnThisMachine(t *testing.T) {
	cfg := onThisMachine(t).cfg
	cfg.Memory = Protection{On: true, Tiered: true}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.EnsureNode(nil, list("cpu", "2", "memory", "4Gi", "pid", "4000")); err != nil {
		t.Fatal(err)
	}
	pod := burstablePod("protected")
	if _, err := m.Create(pod); err != nil {
		t.Fatal(err)
	}
	if err := m.UpdateQOS(requestsOf(pod), true); err != nil {
		t.Fatal(err)
	}
	others := m.root.Child("others")
	if err := m.ensure(others, Limits{CPUShares: 2}); err != nil {
		t.Fatal(err)
	}
	if err := m.Hold(Reserved{Cgroup: others.Cgroupfs(), List: list("memory", "1Gi")}); err != nil {
		t.Fatal(err)
	}
	if !m.v2 {
		return
	}
	n, _ := m.podName(pod)
	for _, c := range []struct {
		n    cgroupname.Name
		file string
		want int64
	}{
		{n, qos.MemoryLow, 32 << 20},
		{m.kubepods.Child(cgroupname.Burstable), qos.MemoryLow, 32 << 20},
		{m.kubepods, qos.MemoryMin, 32 << 20},
		{others, qos.MemoryMin, 1 << 30},
	} {
		if got := m.qos.protectedBy(c.n, c.file); got != c.want {
			t.Errorf("%s of %s is %d, want %d", c.file, m.path(c.n), got, c.want)
		}
	}
}

func TestConfigOf(t *testing.T) {
	k := &kubeletv1beta1.KubeletConfiguration{
		CPUManagerPolicy: "static", MemoryReservationPolicy: kubeletv1beta1.TieredReservationMemoryReservationPolicy,
		QOSReserved: map[string]string{"memory": "50%"}, EnforceNodeAllocatable: []string{"pods"},
	}
	c := ConfigOf(k)
	if !c.PerQOS || !c.EnforcePods || !c.StaticCPUs || c.Memory.On || !c.Memory.Tiered || c.Memory.Percent != nil {
		t.Errorf("by default: %+v", c)
	}
	k.FeatureGates = map[string]bool{"MemoryQoS": true, "QOSReserved": true, "DisableCPUQuotaWithExclusiveCPUs": false}
	c = ConfigOf(k)
	if !c.Memory.On || c.Memory.Percent == nil || *c.Memory.Percent != 50 || c.StaticCPUs {
		t.Errorf("with the gates: %+v", c)
	}
}

// A quota holds a pod with CPUs of its own where the gate DisableCPUQuotaWithExclusiveCPUs is off.
func TestQuotaOfExclusiveCPUs(t *testing.T) {
	full := list("cpu", "2", "memory", "64Mi")
	for free, want := range map[bool]int64{true: unlimited, false: 200000} {
		cfg := Config{CPUCFSQuota: true, CPUCFSQuotaPeriod: 100_000_000, StaticCPUs: free}
		if got := LimitsOf(podOf(container(full, full)), cfg).CPUQuota; got != want {
			t.Errorf("StaticCPUs %t: the quota is %d, want %d", free, got, want)
		}
	}
}
