package cgroupmove

import (
	"strings"
	"testing"
)

// The files of cgroups are there before the directories are made, as no kernel makes them here.
func TestOwnV2(t *testing.T) {
	f := newFake(t, mountsV2, "0::/\n")
	f.write("cgroup/cgroup.controllers", "cpuset cpu memory\n")
	f.write("cgroup/cgroup.subtree_control", "cpu")
	f.write("cgroup/kube/cgroup.controllers", "cpu memory\n")
	f.write("cgroup/kube/cgroup.subtree_control", "")
	f.write("cgroup/kube/agent/cgroup.procs", "")
	moved, err := f.open().own(t.Context(), 0, "/kube/agent")
	if !moved || err != nil {
		t.Errorf("moved %v, %v", moved, err)
	}
	for name, want := range map[string]string{
		"cgroup/cgroup.subtree_control":      "cpu+cpuset+memory",
		"cgroup/kube/cgroup.subtree_control": "+cpu+memory",
		"cgroup/kube/agent/cgroup.procs":     "0",
	} {
		if got := f.read(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// Each hierarchy of version 1 has the process, and a new cpuset gets the CPUs and memory of the one above it.
func TestOwnV1(t *testing.T) {
	f := newFake(t, mountsV1, linesOfV1("/", "/"))
	for _, tree := range []string{"cpu,cpuacct", "cpuset", "devices", "systemd", "unified", "elogind"} {
		f.write("cgroup/"+tree+"/kube/agent/cgroup.procs", "")
	}
	for name, text := range map[string]string{
		"cpuset.cpus": "0-3\n", "cpuset.mems": "0\n", "kube/cpuset.cpus": "1\n", "kube/cpuset.mems": "\n",
		"kube/agent/cpuset.cpus": "", "kube/agent/cpuset.mems": "\n",
	} {
		f.write("cgroup/cpuset/"+name, text)
	}
	moved, err := f.open().own(t.Context(), 0, "/kube/agent")
	if !moved || err != nil {
		t.Errorf("moved %v, %v", moved, err)
	}
	for name, want := range map[string]string{
		"cpu,cpuacct/kube/agent/cgroup.procs": "0", "cpuset/kube/agent/cgroup.procs": "0",
		"devices/kube/agent/cgroup.procs": "0", "systemd/kube/agent/cgroup.procs": "0",
		"unified/kube/agent/cgroup.procs": "0", "elogind/kube/agent/cgroup.procs": "",
		"cpuset/kube/cpuset.cpus": "1", "cpuset/kube/cpuset.mems": "0",
		"cpuset/kube/agent/cpuset.cpus": "1", "cpuset/kube/agent/cpuset.mems": "0",
	} {
		if got := strings.TrimSpace(f.read("cgroup/" + name)); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// A process that is where it belongs isn't touched: there is nothing that could be written to.
func TestOwnInPlace(t *testing.T) {
	f := newFake(t, mountsV2, "0::/kube/agent\n")
	if moved, err := f.open().own(t.Context(), 0, "/kube/agent"); moved || err != nil {
		t.Errorf("moved %v, %v", moved, err)
	}
	f.process(8, "/bin/a", "0::/kube\n")
	moved, err := f.open().own(t.Context(), 8, "/kube/agent")
	if moved || err == nil || !strings.HasPrefix(err.Error(), "move the process 8 into the cgroup /kube/agent (kubeletC") {
		t.Errorf("where it can't be moved: %v, %v", moved, err)
	}
	if moved, err := f.open().own(t.Context(), 9, "/kube/agent"); moved || err == nil {
		t.Errorf("a process that isn't there: %v, %v", moved, err)
	}
}

func TestOwnStaysInItsUnit(t *testing.T) {
	f := newFake(t, mountsV2, "0::/kubelot.slice/kubelot-gc.service\n")
	m := f.open()
	for _, name := range []string{"/", "/kubelot.slice", "/kubelot.slice/kubelot-gc.service"} {
		if moved, err := m.own(t.Context(), 0, name); moved || err != nil {
			t.Errorf("in %s: moved %v, %v", name, moved, err)
		}
	}
	for _, name := range []string{"/system.slice/kubelet.service", "/kubelot", "/kubelot.slice/kubelot-gc.service/sub"} {
		moved, err := m.own(t.Context(), 0, name)
		if moved || err == nil || !strings.Contains(err.Error(), "unit /kubelot.slice/kubelot-gc.service, which it "+
			"doesn't leave for "+name) || !strings.Contains(err.Error(), "set Slice=") {
			t.Errorf("in %s: moved %v, %v", name, moved, err)
		}
	}
}
