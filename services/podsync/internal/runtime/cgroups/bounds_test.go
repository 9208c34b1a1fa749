package cgroups

import (
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/opencontainers/cgroups"

	"kubelot.dev/cri/cgroupname"
)

func TestBounds(t *testing.T) {
	for name, c := range map[string]struct {
		guaranteed, burstable, percent int64
		want                           bounds
	}{
		"no pods":       {0, 0, 50, bounds{1000, 1000}},
		"all of it":     {300, 200, 100, bounds{700, 500}},
		"half of it":    {300, 200, 50, bounds{850, 750}},
		"nothing of it": {300, 200, 0, bounds{1000, 1000}},
		"nothing left":  {900, 100, 100, bounds{100, 0}},
	} {
		got := boundsOf(Requests{GuaranteedMemory: c.guaranteed, BurstableMemory: c.burstable}, c.percent, 1000)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestBoundsOnThisMachine(t *testing.T) {
	m, percent := onThisMachine(t), int64(50)
	burstable, bestEffort := m.kubepods.Child(cgroupname.Burstable), m.kubepods.Child(cgroupname.BestEffort)
	unbounded := read(t, m, burstable, "memory")
	check := func(when, wantBurstable, wantBestEffort string) {
		t.Helper()
		if is, was := read(t, m, burstable, "memory"), read(t, m, bestEffort, "memory"); is != wantBurstable ||
			was != wantBestEffort {
			t.Errorf("%s: the limits are %s and %s, want %s and %s", when, is, was, wantBurstable, wantBestEffort)
		}
	}
	r := Requests{GuaranteedMemory: 1 << 30, BurstableMemory: 512 << 20}
	if err := m.UpdateQOS(r, true); err != nil {
		t.Fatal(err)
	}
	check("without qosReserved", unbounded, unbounded)
	m.qos.memory.Percent = &percent
	if err := m.UpdateQOS(r, false); err != nil {
		t.Fatal(err)
	}
	check("before all pods are known", unbounded, unbounded)
	if err := m.UpdateQOS(r, true); err != nil {
		t.Fatal(err)
	}
	check("half of the requests", "3758096384", "3489660928") // 4 GiB less 512 MiB, less 256 MiB

	// A class that uses more isn't killed, and gets its limit when it uses less.
	end := fill(t, m, bestEffort, 16<<20)
	m.qos.allocatable = 8 << 20
	var soft *LimitsError
	if err := m.UpdateQOS(Requests{}, true); !errors.As(err, &soft) {
		t.Errorf("the class uses more: %v", err)
	}
	if limit, err := strconv.Atoi(read(t, m, bestEffort, "memory")); err != nil || limit < 16<<20 || limit > 64<<20 {
		t.Errorf("the limit of a class that uses 16 MiB is %d, %v", limit, err)
	}
	end()
	if err := m.UpdateQOS(Requests{}, true); err != nil {
		t.Error(err)
	}
	check("once it uses less", "8388608", "8388608")
}

// fill has a process in the cgroup use memory until the result is called.
func fill(t *testing.T, m *Manager, n cgroupname.Name, bytes int) (end func()) {
	t.Helper()
	const script = `read go; text=$(head -c $1 /dev/zero | tr '\0' a); echo; read end`
	cmd := exec.Command("sh", "-c", script, "fill", strconv.Itoa(bytes))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	mount := m.mounts["memory"]
	if m.v2 {
		mount = m.mounts[""]
	}
	if err := cgroups.WriteCgroupProc(filepath.Join(mount, m.path(n)), cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}
