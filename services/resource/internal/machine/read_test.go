package machine

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

// tree writes files below a root directory; an empty content makes a directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		file := filepath.Join(root, path)
		dir := filepath.Dir(file)
		if content == "" {
			dir = file
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if content == "" {
			continue
		}
		if err := os.WriteFile(file, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const system = "sys/devices/system/"

// cpu adds a CPU to the files.
func cpu(files map[string]string, id, socket int, threads, l3, l3ID string) {
	dir := fmt.Sprintf("%scpu/cpu%d/", system, id)
	files[dir+"topology/physical_package_id"] = fmt.Sprint(socket)
	files[dir+"topology/core_cpus_list"] = threads
	files[dir+"cache/index0/level"] = "1"
	files[dir+"cache/index1/level"] = "2"
	if l3 == "" {
		return
	}
	files[dir+"cache/index2/level"] = "3"
	files[dir+"cache/index2/shared_cpu_list"] = l3
	if l3ID != "" {
		files[dir+"cache/index2/id"] = l3ID
	}
}

// twoSockets has two sockets of two cores of two threads, each with a NUMA node, and a node without CPUs.
func twoSockets() map[string]string {
	files := map[string]string{system + "cpu/online": "0-7"}
	for id, core := range []string{"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"} {
		socket := id % 4 / 2
		cpu(files, id, socket, core, []string{"0-1,4-5", "2-3,6-7"}[socket], fmt.Sprint(socket))
	}
	for id, cpus := range []string{"0-1,4-5", "2-3,6-7"} {
		dir := fmt.Sprintf("%snode/node%d/", system, id)
		files[dir+"cpulist"] = cpus
		files[dir+"meminfo"] = fmt.Sprintf("\nNode %d MemTotal:       16384 kB\nNode %d MemFree:  1 kB", id, id)
		files[dir+"hugepages/hugepages-2048kB/nr_hugepages"] = fmt.Sprint(4 + id)
		files[dir+"hugepages/hugepages-1048576kB/nr_hugepages"] = "0"
		files[dir+"distance"] = []string{"10 21 30", "21 10 30"}[id]
	}
	files[system+"node/node4/cpulist"] = " "
	files[system+"node/node4/meminfo"] = "Node 4 MemTotal: 1024 kB"
	files[system+"node/node4/distance"] = "30 30 10"
	files[system+"node/has_cpu"] = "0-1"
	return files
}

func read(t *testing.T, files map[string]string) Topology {
	t.Helper()
	m, err := Read(tree(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestReadTwoSockets(t *testing.T) {
	m := read(t, twoSockets())
	want := map[int]CPU{}
	for id := range 8 {
		socket := id % 4 / 2
		// The cache is all of the node's, so it doesn't count beside the socket.
		want[id] = CPU{Socket: socket, Node: socket, Cache: socket, Core: id % 4}
	}
	if !maps.Equal(m.CPUs, want) {
		t.Errorf("CPUs %v, want %v", m.CPUs, want)
	}
	nodes := []Node{
		{
			ID: 0, MemoryBytes: 16 << 20, HugePages: map[uint64]uint64{2048: 4, 1048576: 0},
			Distances: map[int]uint64{0: 10, 1: 21, 4: 30},
		},
		{
			ID: 1, MemoryBytes: 16 << 20, HugePages: map[uint64]uint64{2048: 5, 1048576: 0},
			Distances: map[int]uint64{0: 21, 1: 10, 4: 30},
		},
		{ID: 4, MemoryBytes: 1 << 20, Distances: map[int]uint64{0: 30, 1: 30, 4: 10}},
	}
	if !reflect.DeepEqual(m.Nodes, nodes) {
		t.Errorf("nodes %+v, want %+v", m.Nodes, nodes)
	}
}

// A thread that is offline is no CPU, and a core whose lowest thread is offline has another ID.
func TestReadOffline(t *testing.T) {
	files := twoSockets()
	files[system+"cpu/online"] = "1-7"
	m := read(t, files)
	if _, ok := m.CPUs[0]; ok || len(m.CPUs) != 7 || m.CPUs[4].Core != 4 {
		t.Errorf("%v, want seven CPUs, and 4 alone in its core", m.CPUs)
	}
	if got := m.CPUsPerCore(); got != 1 {
		t.Errorf("%d CPUs per core on average, want 1", got)
	}
}

func TestReadCaches(t *testing.T) {
	for _, c := range []struct {
		name   string
		l3, id []string // of the CPUs 0 to 3, in sockets 0, 0, 1, 1, and in one NUMA node
		want   []int
	}{
		{"one for all", []string{"0-3", "0-3", "0-3", "0-3"}, []string{"7", "7", "7", "7"}, []int{0, 0, 1, 1}},
		{"part of the node", []string{"0-1", "0-1", "2-3", "2-3"}, []string{"5", "5", "2", "2"}, []int{5, 5, 2, 2}},
		{"without IDs", []string{"0-1", "0-1", "2-3", "2-3"}, []string{"", "", "", ""}, []int{0, 0, 2, 2}},
		{"no caches", []string{"", "", "", ""}, []string{"", "", "", ""}, []int{0, 0, 1, 1}},
		{"some", []string{"0-1", "0-1", "", ""}, []string{"1", "1", "", ""}, []int{1, 1, 3, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{system + "cpu/online": "0-3", system + "node/node0/cpulist": "0-3"}
			for id := range 4 {
				cpu(files, id, id/2, fmt.Sprint(id), c.l3[id], c.id[id])
			}
			m := read(t, files)
			for id, want := range c.want {
				if m.CPUs[id].Cache != want {
					t.Errorf("CPU %d is in cache %d, want %d", id, m.CPUs[id].Cache, want)
				}
			}
		})
	}
}

func TestReadWithoutNUMA(t *testing.T) {
	files := map[string]string{
		system + "cpu/online": "0-1", "proc/meminfo": "MemTotal: 4096 kB",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3",
	}
	cpu(files, 0, -1, "0-1", "", "")
	m := read(t, files)
	if want := map[int]CPU{0: {Core: 0}, 1: {Core: 1}}; !maps.Equal(m.CPUs, want) {
		t.Errorf("CPUs %v, want %v", m.CPUs, want)
	}
	if want := []Node{{MemoryBytes: 4 << 20, HugePages: map[uint64]uint64{2048: 3}}}; !reflect.DeepEqual(m.Nodes, want) {
		t.Errorf("nodes %v, want %v", m.Nodes, want)
	}

	cpu(files, 1, 3, "1", "", "")
	m = read(t, files)
	if want := []Node{{ID: 0}, {ID: 3}}; !reflect.DeepEqual(m.Nodes, want) || m.CPUs[1].Node != 3 {
		t.Errorf("nodes %v, want %v, and CPU 1 in 3: %v", m.Nodes, want, m.CPUs)
	}
}

func TestReadFails(t *testing.T) {
	for _, c := range []struct {
		name, file, content, want string
	}{
		{"no CPUs", system + "cpu/online", " ", "names none"},
		{"a strange list", system + "cpu/online", "0-x", "cpu/online"},
		{"a strange list of a node", system + "node/node1/cpulist", "a", "node1/cpulist"},
		{"a strange number", system + "node/node1/hugepages/hugepages-2048kB/nr_hugepages", "many", "nr_hugepages"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := twoSockets()
			files[c.file] = c.content
			if m, err := Read(tree(t, files)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v, want an error with %q", m, err, c.want)
			}
		})
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("an empty directory is no machine")
	}
}

// What the kernel states of some nodes only, or in another form, is left out.
func TestReadLeavesOut(t *testing.T) {
	files := twoSockets()
	files[system+"node/node0/distance"] = "10 21"
	files[system+"node/node1/distance"] = "21 x 30"
	delete(files, system+"node/node0/meminfo")
	files[system+"node/node1/meminfo"] = "MemTotal: lots"
	m := read(t, files)
	for _, n := range m.Nodes[:2] {
		if n.Distances != nil || n.MemoryBytes != 0 {
			t.Errorf("%+v has distances or memory", n)
		}
	}
}

// This machine, whatever it is.
func TestReadHere(t *testing.T) {
	m, err := Read("/")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Nodes) == 0 || len(m.CPUs) == 0 {
		t.Fatalf("%+v has no CPUs or no nodes", m)
	}
	for id, c := range m.CPUs {
		if !slices.ContainsFunc(m.Nodes, func(n Node) bool { return n.ID == c.Node }) || c.Core > id {
			t.Errorf("CPU %d: %+v", id, c)
		}
	}
}

func TestHelpers(t *testing.T) {
	m := read(t, twoSockets())
	if got := m.In(NUMANode, 1).String(); got != "2-3,6-7" {
		t.Errorf("node 1 has %s", got)
	}
	if got := m.In(Core, 0, 2).String(); got != "0,2,4,6" {
		t.Errorf("cores 0 and 2 have %s", got)
	}
	if got := m.Places(Core); !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("cores %v", got)
	}
	if got := m.WholeCores(cpuset.New(0, 1, 4, 6, 99)).String(); got != "0,4" {
		t.Errorf("whole cores %s", got)
	}
	if got := m.Tally(cpuset.New(0, 1, 2, 99), Socket); !maps.Equal(got, map[int]int{0: 2, 1: 1}) {
		t.Errorf("tally %v", got)
	}
	if got := (Topology{}).CPUsPerCore(); got != 0 {
		t.Errorf("%d CPUs per core of none", got)
	}
}
