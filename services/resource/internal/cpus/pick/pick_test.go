package pick

import (
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"kubelot.dev/services/resource/internal/machine"
)

// grid is a machine by its numbers: sockets, NUMA nodes per socket, uncore caches per node, cores per cache, and
// threads per core. The first threads of all cores have the lowest IDs, as the kernel numbers them.
func grid(sockets, nodes, caches, cores, threads int) machine.Topology {
	m := machine.Topology{CPUs: map[int]machine.CPU{}}
	all := sockets * nodes * caches * cores
	for t := range threads {
		for i := range all {
			m.CPUs[t*all+i] = machine.CPU{
				Socket: i / (nodes * caches * cores), Node: i / (caches * cores),
				Cache: i / cores, Core: i,
			}
		}
	}
	return m
}

func set(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	s, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPacked(t *testing.T) {
	for _, c := range []struct {
		name      string
		machine   machine.Topology
		available string // all, if it is empty
		count     int
		spread    bool
		caches    bool
		want, err string
	}{
		{name: "nothing", machine: grid(1, 1, 1, 4, 2)},
		{name: "a core", machine: grid(1, 1, 1, 4, 2), count: 2, want: "0,4"},
		{name: "a thread of a core in use", machine: grid(1, 1, 1, 4, 2), available: "0-2,4-7", count: 1, want: "7"},
		{name: "a core and a thread", machine: grid(1, 1, 1, 4, 2), available: "1-7", count: 3, want: "1,4-5"},
		{name: "a socket", machine: grid(2, 1, 1, 2, 2), available: "1-7", count: 4, want: "2-3,6-7"},
		{name: "the socket in use", machine: grid(2, 1, 1, 2, 2), available: "0-2,4-6", count: 2, want: "2,6"},
		{name: "a NUMA node of the socket in use", machine: grid(2, 2, 1, 2, 1), available: "0-4,6-7", count: 2, want: "6-7"},
		{name: "a socket and a node", machine: grid(2, 2, 1, 2, 1), count: 6, want: "0-5"},
		{name: "a thread of each core", machine: grid(1, 1, 1, 4, 2), count: 3, spread: true, want: "0-2"},
		{name: "a cache", machine: grid(1, 1, 2, 4, 1), available: "1-7", count: 4, caches: true, want: "4-7"},
		{name: "no cache", machine: grid(1, 1, 2, 4, 1), available: "1-7", count: 4, want: "1-4"},
		{name: "part of a cache", machine: grid(1, 1, 2, 4, 1), available: "3-7", count: 2, caches: true, want: "4-5"},
		{
			name: "a cache and part of one", machine: grid(1, 1, 3, 4, 1), available: "2-11", count: 6, caches: true,
			want: "2-7",
		},
		{name: "too many", machine: grid(1, 1, 1, 4, 2), available: "0-3", count: 5, err: "requested=5, available=4"},
		{name: "unknown CPUs", machine: grid(1, 1, 1, 2, 1), available: "1-5", count: 2, err: "requested=2, available=5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Request{Machine: c.machine, Available: c.machine.All(), Count: c.count, Spread: c.spread, AlignCaches: c.caches}
			if c.available != "" {
				r.Available = set(t, c.available)
			}
			got, err := Packed(r)
			check(t, got, err, c.want, c.err)
		})
	}
}

func check(t *testing.T, got cpuset.CPUSet, err error, want, wantErr string) {
	t.Helper()
	if wantErr != "" {
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s, %v, want an error with %q", got, err, wantErr)
		}
		return
	}
	if err != nil || !got.Equals(set(t, want)) {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

func TestDistributed(t *testing.T) {
	for _, c := range []struct {
		name         string
		machine      machine.Topology
		available    string
		count, group int
		want, err    string
	}{
		{name: "one node", machine: grid(1, 2, 1, 4, 2), count: 8, group: 1, want: "0-3,8-11"},
		{name: "two nodes", machine: grid(1, 2, 1, 4, 2), count: 10, group: 1, want: "0-2,4-6,8-9,12-13"},
		{name: "two nodes, whole cores", machine: grid(1, 2, 1, 4, 2), count: 10, group: 2, want: "0-2,4-5,8-10,12-13"},
		{
			name: "what is over comes from the emptier node", machine: grid(2, 1, 1, 4, 1), available: "1-7", count: 5, group: 1,
			want: "1-2,4-6",
		},
		{name: "no even split", machine: grid(2, 1, 1, 4, 1), available: "3-7", count: 5, group: 1, want: "3-7"},
		{name: "no whole groups", machine: grid(2, 1, 1, 2, 2), count: 3, group: 2, want: "0-1,4"},
		{
			// Of four nodes, the kubelet's best choice changes while it goes on looking.
			name: "four nodes", machine: grid(6, 1, 1, 4, 1), available: "0-3,5-23", count: 16, group: 1, want: "0-3,8-19",
		},
		{name: "too many", machine: grid(2, 1, 1, 2, 1), count: 5, group: 1, err: "requested=5, available=4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Request{Machine: c.machine, Available: c.machine.All(), Count: c.count}
			if c.available != "" {
				r.Available = set(t, c.available)
			}
			got, err := Distributed(r, c.group)
			check(t, got, err, c.want, c.err)
		})
	}
}

// What is picked is available and of the right size, on any machine: also where cores, sockets and caches differ, and
// where they cross each other.
func TestPickedIsAvailable(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 5))
		m := machine.Topology{CPUs: map[int]machine.CPU{}}
		kinds := 1 + r.IntN(4)
		for id := range 2 + r.IntN(40) {
			core := id
			if r.IntN(2) == 0 {
				core = r.IntN(id + 1)
			}
			m.CPUs[id] = machine.CPU{Socket: r.IntN(kinds), Node: r.IntN(kinds), Cache: r.IntN(kinds), Core: core}
		}
		available := cpuset.New()
		for id := range m.CPUs {
			if r.IntN(4) > 0 {
				available = available.Union(cpuset.New(id))
			}
		}
		req := Request{
			Machine: m, Available: available, Count: r.IntN(available.Size() + 2),
			Spread: r.IntN(4) == 0, AlignCaches: r.IntN(2) == 0,
		}
		for _, pick := range []func() (cpuset.CPUSet, error){
			func() (cpuset.CPUSet, error) { return Packed(req) },
			func() (cpuset.CPUSet, error) { return Distributed(req, 1+r.IntN(3)) },
		} {
			got, err := pick()
			if (err != nil) != (req.Count > available.Size()) {
				t.Fatalf("seed %d: %d of %s: %s, %v", seed, req.Count, available, got, err)
			}
			if err == nil && (got.Size() != req.Count || !got.IsSubsetOf(available)) {
				t.Fatalf("seed %d: %d of %s: %s", seed, req.Count, available, got)
			}
		}
	}
}
