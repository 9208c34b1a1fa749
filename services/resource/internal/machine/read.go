package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Read reads the machine's topology from sys (and proc) below the root directory, "/" on a node.
//
// CPUs that are offline aren't part of it. A kernel without NUMA has a node for each socket, as cAdvisor has it.
// Memory, huge pages and distances that the kernel doesn't state are left out.
func Read(root string) (Topology, error) {
	r := reader{root: root, system: filepath.Join(root, "sys/devices/system")}
	online, err := r.cpus(filepath.Join(r.system, "cpu/online"))
	if err != nil {
		return Topology{}, fmt.Errorf("read the CPUs that are online: %w", err)
	}
	if online.IsEmpty() {
		return Topology{}, fmt.Errorf("read the CPUs that are online: %s/cpu/online names none", r.system)
	}
	t := Topology{CPUs: map[int]CPU{}}
	for _, id := range online.List() {
		t.CPUs[id] = r.place(id, online)
	}
	if t.Nodes, err = r.nodes(t); err != nil {
		return Topology{}, fmt.Errorf("read the NUMA nodes: %w", err)
	}
	r.caches(t, online)
	return t, nil
}

type reader struct {
	root   string
	system string
}

// place finds the socket and the core of a CPU. A CPU whose place the kernel doesn't know is a core by itself, in
// socket 0; virtual machines without tables of their processors state socket -1.
func (r reader) place(id int, online cpuset.CPUSet) CPU {
	dir := r.cpuDir(id) + "/topology"
	c := CPU{Core: id}
	if n, err := number(filepath.Join(dir, "physical_package_id")); err == nil && n > 0 {
		c.Socket = int(n)
	}
	for _, file := range []string{"core_cpus_list", "thread_siblings_list"} {
		threads, err := r.cpus(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		if here := threads.Intersection(online).List(); len(here) > 0 {
			c.Core = min(id, here[0])
		}
		break
	}
	return c
}

// nodes reads the NUMA nodes and writes each CPU's into the topology.
func (r reader) nodes(t Topology) ([]Node, error) {
	dirs, err := entries(filepath.Join(r.system, "node"), "node")
	if err != nil {
		return nil, err
	}
	if len(dirs) == 0 {
		return r.sockets(t), nil
	}
	var nodes []Node
	placed := cpuset.New()
	for id, dir := range dirs {
		node := Node{ID: int(id), MemoryBytes: memory(filepath.Join(dir, "meminfo"))}
		if node.HugePages, err = hugePages(filepath.Join(dir, "hugepages")); err != nil {
			return nil, err
		}
		cpus, err := r.cpus(filepath.Join(dir, "cpulist"))
		if err != nil {
			return nil, err
		}
		setNode(t, cpus, node.ID)
		placed = placed.Union(cpus)
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, byID)
	// Every CPU is near to some memory; one that the kernel has in no node counts to the first.
	setNode(t, t.All().Difference(placed), nodes[0].ID)
	for i := range nodes {
		nodes[i].Distances = distances(filepath.Join(dirs[uint64(nodes[i].ID)], "distance"), nodes)
	}
	return nodes, nil
}

// sockets are the nodes of a kernel without NUMA. Only of a single one is it known how much memory it has.
func (r reader) sockets(t Topology) []Node {
	var nodes []Node
	for _, id := range t.Places(Socket) {
		setNode(t, t.In(Socket, id), id)
		nodes = append(nodes, Node{ID: id})
	}
	if len(nodes) == 1 {
		nodes[0].MemoryBytes = memory(filepath.Join(r.root, "proc/meminfo"))
		nodes[0].HugePages, _ = hugePages(filepath.Join(r.root, "sys/kernel/mm/hugepages"))
	}
	return nodes
}

func setNode(t Topology, cpus cpuset.CPUSet, node int) {
	for _, id := range cpus.UnsortedList() {
		if c, ok := t.CPUs[id]; ok {
			c.Node = node
			t.CPUs[id] = c
		}
	}
}

// caches writes each CPU's uncore cache into the topology: its L3 cache where that belongs to part of the NUMA node, or
// to more than it, else the socket.
func (r reader) caches(t Topology, online cpuset.CPUSet) {
	perNode := t.Tally(online, NUMANode)
	found, next := map[int]int{}, 0
	for id, cpu := range t.CPUs {
		cache, sharers, ok := r.lastLevel(id, online)
		if ok && sharers != perNode[cpu.Node] {
			found[id] = cache
			next = max(next, cache+1)
		}
	}
	for id, cpu := range t.CPUs {
		cache, ok := found[id]
		if !ok {
			// Where some CPUs have such a cache and others don't, the two kinds of IDs are kept apart.
			cache = next + cpu.Socket
		}
		cpu.Cache = cache
		t.CPUs[id] = cpu
	}
}

// lastLevel is the ID of a CPU's cache above L2, and how many CPUs share it. A cache without an ID has that of its
// lowest CPU.
func (r reader) lastLevel(cpu int, online cpuset.CPUSet) (id, sharers int, ok bool) {
	const l2 = 2
	dirs, err := entries(r.cpuDir(cpu)+"/cache", "index")
	if err != nil {
		return 0, 0, false
	}
	for i := range uint64(len(dirs)) {
		dir, there := dirs[i]
		if level, err := number(filepath.Join(dir, "level")); !there || err != nil || level <= l2 {
			continue
		}
		shared, err := r.cpus(filepath.Join(dir, "shared_cpu_list"))
		shared = shared.Intersection(online)
		if err != nil || !shared.Contains(cpu) {
			continue
		}
		if n, err := number(filepath.Join(dir, "id")); err == nil && n >= 0 {
			return int(n), shared.Size(), true
		}
		return shared.List()[0], shared.Size(), true
	}
	return 0, 0, false
}

func (r reader) cpuDir(id int) string {
	return filepath.Join(r.system, "cpu", "cpu"+strconv.Itoa(id))
}

// cpus reads a list such as 0-3,8.
func (r reader) cpus(file string) (cpuset.CPUSet, error) {
	text, err := line(file)
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	set, err := cpuset.Parse(text)
	if err != nil {
		return cpuset.CPUSet{}, fmt.Errorf("%s: %w", file, err)
	}
	return set, nil
}

// entries are the paths in a directory by the number that follows the prefix. A directory that isn't there has none.
func entries(dir, prefix string) (map[uint64]string, error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := map[uint64]string{}
	for _, e := range list {
		if rest, ok := strings.CutPrefix(e.Name(), prefix); ok {
			if n, err := strconv.ParseUint(rest, 10, 31); err == nil {
				found[n] = filepath.Join(dir, e.Name())
			}
		}
	}
	return found, nil
}

func line(file string) (string, error) {
	data, err := os.ReadFile(file)
	return strings.TrimSpace(string(data)), err
}

func number(file string) (int64, error) {
	text, err := line(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 32)
}
