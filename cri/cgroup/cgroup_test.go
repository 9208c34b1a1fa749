package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"kubelot.dev/cri/cgroup/cgrouptest"
)

const (
	uid = cgrouptest.UID
	app = cgrouptest.App
)

func recorded(t testing.TB, tree, driver string) *Tree {
	t.Helper()
	made, err := New(cgrouptest.Unpack(t, tree), driver, "/")
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// read samples a container of the recorded pod.
func read(t *testing.T, tree *Tree, id string) (Sample, string) {
	t.Helper()
	pods, err := tree.Pods()
	if err != nil || len(pods) != 1 || pods[uid] == "" {
		t.Fatalf("pods %v, %v; want %s", pods, err, uid)
	}
	at := tree.Containers(pods[uid])[id]
	s, err := tree.Read(at, true)
	if err != nil || s.CPU == nil || s.Memory == nil || s.Tasks == nil {
		t.Fatalf("%s: %+v, %v", at, s, err)
	}
	return s, at
}

func TestVersion1(t *testing.T) {
	tree := recorded(t, cgrouptest.V1, "cgroupfs")
	s, at := read(t, tree, app)
	if tree.v2 || at != "/kubepods/burstable/pod"+uid+"/"+app {
		t.Errorf("version 2 is %v, path %s", tree.v2, at)
	}
	c := s.CPU
	if c.Total != 42276906 || c.Quota != 50000 || c.Period != 100000 || c.Shares != 512 || c.Pressure != nil {
		t.Errorf("cpu %+v", c)
	}
	m := s.Memory
	if m.Usage != 5853184 || m.Limit != 64<<20 || m.WorkingSet != m.Usage-m.InactiveFile || m.WorkingSet == m.Usage ||
		m.Faults == 0 || m.RSS == 0 {
		t.Errorf("memory %+v", m)
	}
	if s.Tasks.Processes != 2 || s.Tasks.Threads != 2 {
		t.Errorf("tasks %+v, want 2 processes", s.Tasks)
	}
	other, _ := read(t, tree, cgrouptest.Other)
	if other.Memory.Limit != Unlimited || other.Memory.SwapLimit != Unlimited || other.CPU.Quota != 0 {
		t.Errorf("a container without limits has %+v, %+v", other.Memory, other.CPU)
	}
	_, box := read(t, tree, cgrouptest.Box)
	net := tree.Network(box)
	want := Interface{
		Name: "eth0", RxBytes: 1086, RxPackets: 15, RxErrors: 1, RxDropped: 2, TxBytes: 612, TxPackets: 8,
		TxErrors: 3, TxDropped: 4,
	}
	if len(net) != 1 || net[0] != want {
		t.Errorf("network %+v", net)
	}
}

func TestVersion2(t *testing.T) {
	tree := recorded(t, cgrouptest.V2, "systemd")
	s, at := read(t, tree, app)
	if !tree.v2 || !strings.HasSuffix(at, ".slice/cri-containerd-"+app+".scope") {
		t.Errorf("version 2 is %v, path %s", tree.v2, at)
	}
	pressure := &Pressure{Some: Stall{Avg10: 1.5, Avg60: .25, Total: 1234000}, Full: Stall{Avg10: .5, Total: 234000}}
	wantCPU := CPU{
		Total: 42276000, User: 30000000, System: 12276000, Periods: 40, Throttled: 3, ThrottledTime: 1500000,
		Shares: 2 + 19*262142/9999, Quota: 50000, Period: 100000, Pressure: pressure,
	}
	if !reflect.DeepEqual(*s.CPU, wantCPU) {
		t.Errorf("cpu\n%+v, want\n%+v", *s.CPU, wantCPU)
	}
	wantMemory := Memory{
		Usage: 5713920, MaxUsage: 6000000, WorkingSet: 5713920 - 4911104, RSS: 110592, Cache: 5029888,
		Mapped: 32768, Kernel: 573440,
		ActiveFile: 118784, InactiveFile: 4911104, Dirty: 8192, Writeback: 4096, Faults: 2466, MajorFaults: 2,
		FailCount: 9, OOMKills: 1,
		Scanned: 11, Stolen: 7, RefaultedFile: 6, RefaultedAnon: 5, EventsHigh: 3, EventsMax: 9, Swap: 4096, SwapLimit: 0,
		Limit: 64 << 20, Reservation: 8192,
		Version2: true, Pressure: pressure,
	}
	if !reflect.DeepEqual(*s.Memory, wantMemory) {
		t.Errorf("memory\n%+v, want\n%+v", *s.Memory, wantMemory)
	}
	if want := (Tasks{Processes: 2, Threads: 3}); *s.Tasks != want {
		t.Errorf("tasks %+v", s.Tasks)
	}
	if len(s.IO) != 2 || s.IO[0] != (DeviceIO{Major: 254, ReadBytes: 4096, WrittenBytes: 8192, Reads: 1, Writes: 2}) ||
		!reflect.DeepEqual(s.IOPressure, pressure) {
		t.Errorf("io %+v, %+v", s.IO, s.IOPressure)
	}
	io, names := tree.Disks()
	if names[[2]uint64{254, 0}] != "/dev/vda" || len(io) != 1 ||
		io[0] != (DeviceIO{Major: 254, Reads: 1, ReadBytes: 3 * 512, Writes: 5, WrittenBytes: 7 * 512}) {
		t.Errorf("disks %+v, %v", io, names)
	}
	if own := tree.Own(); own != "/kubelot.slice/kubelot-stats.service" {
		t.Errorf("own cgroup %q", own)
	}
}

// With systemd, crun has the processes of a container in a cgroup within the container's.
func TestNestedProcesses(t *testing.T) {
	nested := strings.ReplaceAll(cgrouptest.V1, cgrouptest.Box+"/cgroup.procs", cgrouptest.Box+"/container/cgroup.procs")
	if nested == cgrouptest.V1 {
		t.Fatal("nothing was nested")
	}
	tree := recorded(t, nested, "cgroupfs")
	s, box := read(t, tree, cgrouptest.Box)
	if net := tree.Network(box); s.Tasks.Processes != 1 || len(net) != 1 {
		t.Errorf("tasks %+v, network %+v; want 1 of each", s.Tasks, net)
	}
}

// The root of version 2 has no memory.current.
func TestRootOfVersion2(t *testing.T) {
	tree := recorded(t, cgrouptest.V2, "systemd")
	s, err := tree.Read("/", true)
	if err != nil || s.CPU == nil || s.Memory == nil {
		t.Fatalf("%+v, %v", s, err)
	}
	m := s.Memory
	if s.CPU.Total != 9e9 || m.Usage != 4000000 || m.WorkingSet != 3500000 || m.Swap != 1<<20 || m.Pressure == nil ||
		s.CPU.Pressure == nil {
		t.Errorf("cpu %+v, memory %+v", s.CPU, m)
	}
	if n, err := tree.Running(); err != nil || n != 345 {
		t.Errorf("%d threads, %v", n, err)
	}
}

// Version 1's limit of swap is that of memory and swap together; a fork bomb has more processes than are read of any
// other file.
func TestBoundsOfVersion1(t *testing.T) {
	root := cgrouptest.Unpack(t, cgrouptest.V1)
	at := filepath.Join("/kubepods/burstable/pod"+uid, app)
	const bomb = 300_000
	if err := errors.Join(
		os.WriteFile(filepath.Join(root, "sys/fs/cgroup/memory", at, "memory.memsw.limit_in_bytes"),
			[]byte("100000000\n"), 0o600),
		os.WriteFile(filepath.Join(root, "sys/fs/cgroup/pids", at, "cgroup.procs"), []byte(strings.Repeat("1234567\n", bomb)),
			0o600),
	); err != nil {
		t.Fatal(err)
	}
	tree, err := New(root, "cgroupfs", "/")
	if err != nil {
		t.Fatal(err)
	}
	s, err := tree.Read(at, true)
	if err != nil || s.Memory.SwapBound != 100000000 || s.Memory.SwapLimit != 100000000-64<<20 {
		t.Errorf("memory %+v, %v", s.Memory, err)
	}
	if s.Tasks.Processes != bomb {
		t.Errorf("%d processes, want %d", s.Tasks.Processes, bomb)
	}
}

func TestGone(t *testing.T) {
	tree := recorded(t, cgrouptest.V1, "cgroupfs")
	if _, err := tree.Read("/kubepods/none", true); !errors.Is(err, ErrGone) {
		t.Errorf("error %v, want ErrGone", err)
	}
	if net := tree.Network("/kubepods/none"); net != nil {
		t.Error("a cgroup that is gone has a network")
	}
}

// Whatever a file holds, reading it neither fails nor makes up huge lists.
func FuzzParse(f *testing.F) {
	f.Add([]byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=x"))
	f.Add([]byte("8:0 Read 4096\n8:0 Total 1\n8 Read"))
	f.Add([]byte("8:0 rbytes=1 wbytes=-2"))
	f.Add([]byte("eth0: 1 2 3 4 5 6 7 8 9 10 11 12"))
	f.Add([]byte("max\n-1\n99999999999999999999999"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p := parsePressure(data); p != nil && (p.Some.Avg10 < 0 || p.Full.Avg10 < 0) {
			t.Errorf("negative pressure %+v", p)
		}
		lines := strings.Count(string(data), "\n") + 1
		if n := len(parseBlkio(data, nil, true)) + len(parseIOStat(data)); n > 2*lines {
			t.Errorf("%d devices in %d lines", n, lines)
		}
		if n := len(parseNetDev(data)); n > lines {
			t.Errorf("%d interfaces in %d lines", n, lines)
		}
		eachKey(data, func(key []byte, _ uint64) {
			if strings.ContainsAny(string(key), " \n") {
				t.Errorf("key %q", key)
			}
		})
		number(data)
	})
}

// BenchmarkRead is the cost of one cgroup: 100 pods of one container have 300.
func BenchmarkRead(b *testing.B) {
	tree := recorded(b, cgrouptest.V1, "cgroupfs")
	at := "/kubepods/burstable/pod" + uid + "/" + app
	for name, all := range map[string]bool{"cpu and memory": false, "all": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tree.Read(at, all); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The times of a cgroup's files move; the oldest is the nearest to when it was made.
func TestCreated(t *testing.T) {
	for name, file := range map[string]string{"v1": "cgroup.clone_children", "v2": "cgroup.events"} {
		dir := t.TempDir()
		made := time.Unix(1_700_000_000, 0)
		if err := errors.Join(os.WriteFile(filepath.Join(dir, file), nil, 0o600), os.Chtimes(filepath.Join(dir, file), made,
			made)); err != nil {
			t.Fatal(err)
		}
		if at, err := created(dir); err != nil || !at.Equal(made) {
			t.Errorf("%s: %v, %v; want %v", name, at, err, made)
		}
		if err := os.Chtimes(dir, made.Add(-time.Hour), made.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		if at, err := created(dir); err != nil || !at.Equal(made.Add(-time.Hour)) {
			t.Errorf("%s: %v, %v; want an hour before %v", name, at, err, made)
		}
	}
	if _, err := created("/no/such"); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}
