package cpus

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/numa"
)

func TestAllocate(t *testing.T) {
	for _, c := range []struct {
		name     string
		machine  machine.Topology
		reserved string
		options  []string
		pods     []*corev1.Pod
		// want are the containers' CPUs, pod by pod; err is the error of the last pod.
		want   []string
		err    string
		shared string
	}{
		{
			name: "a core", machine: grid(1, 1, 4, 2), reserved: "0", pods: []*corev1.Pod{pod("a", "app=2")},
			want: []string{"app=1,5"}, shared: "0,2-4,6-7",
		},
		{
			name: "the reserved CPUs are for nobody", machine: grid(1, 1, 4, 2), reserved: "0,4",
			options: []string{optionStrictReservation}, pods: []*corev1.Pod{pod("a", "app=2")},
			want: []string{"app=1,5"}, shared: "2-3,6-7",
		},
		{
			name: "no whole number", machine: grid(1, 1, 4, 2), reserved: "0",
			pods: []*corev1.Pod{pod("a", "app0=1500m", "app1=1")},
			want: []string{"app0= app1=4"}, shared: "0-3,5-7",
		},
		{
			name: "the first init container's CPUs are used again", machine: grid(1, 1, 4, 1), reserved: "0",
			pods: []*corev1.Pod{pod("a", "init0=3", "init1=2", "app=3")},
			want: []string{"init0=1-3 init1=1-2 app=1-3"}, shared: "0",
		},
		{
			name: "a sidecar keeps its CPUs", machine: grid(1, 1, 4, 1), reserved: "0",
			pods: []*corev1.Pod{pod("a", "sidecar=1", "init=2", "app=2")},
			want: []string{"sidecar=1 init=2-3 app=2-3"}, shared: "0",
		},
		{
			name: "too many", machine: grid(1, 1, 4, 1), reserved: "0",
			pods: []*corev1.Pod{pod("a", "app=2"), pod("b", "app=2")},
			want: []string{"app=1-2", ""}, shared: "0,3",
			err: "not enough cpus available to satisfy request: requested=2, available=1",
		},
		{
			name: "not a multiple of a core", machine: grid(1, 1, 4, 2), reserved: "0,4", options: []string{optionFullCores},
			pods: []*corev1.Pod{pod("a", "app=3")}, want: []string{""}, shared: "0-7",
			err: "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
		},
		{
			name: "half a core is reserved", machine: grid(1, 1, 3, 2), reserved: "0", options: []string{optionFullCores},
			pods: []*corev1.Pod{pod("a", "app=2"), pod("b", "app=4")}, want: []string{"app=1,4", ""}, shared: "0,2-3,5",
			err: "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, " +
				"CPUs per core = 2",
		},
		{
			name: "whole cores of an init container", machine: grid(1, 1, 3, 2), reserved: "0,3",
			options: []string{optionFullCores},
			pods:    []*corev1.Pod{pod("a", "init=4", "app=4")}, want: []string{"init=1-2,4-5 app=1-2,4-5"}, shared: "0,3",
		},
		{
			name: "even between the nodes", machine: grid(1, 2, 4, 1), reserved: "0", options: []string{optionAcrossNUMA},
			pods: []*corev1.Pod{pod("a", "app=6")}, want: []string{"app=1-6"}, shared: "0,7",
		},
		{
			name: "each of another core", machine: grid(1, 1, 4, 2), reserved: "0", options: []string{optionAcrossCores},
			pods: []*corev1.Pod{pod("a", "app=3")}, want: []string{"app=1-3"}, shared: "0,4-7",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := static(t, c.machine, c.reserved, c.options...)
			var err error
			for i, p := range c.pods {
				var got string
				if got, err = run(s, p); got != c.want[i] {
					t.Errorf("pod %d has %q, want %q", i, got, c.want[i])
				}
			}
			if fmt.Sprint(err) != fmt.Sprint(c.err) && (err != nil || c.err != "") {
				t.Errorf("%v, want %q", err, c.err)
			}
			if got := s.Shared().String(); got != c.shared {
				t.Errorf("%s are shared, want %s", got, c.shared)
			}
		})
	}
}

// Who has CPUs gets the same again, and nothing is taken anew; the end of the pod gives everything back.
func TestAllocateAgain(t *testing.T) {
	s := static(t, grid(1, 1, 4, 2), "0,4", optionFullCores)
	p := pod("a", "init=2", "app=6")
	first, err := run(s, p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := run(s, p); again != first || err != nil {
		t.Errorf("%s, %v, want %s", again, err, first)
	}
	if got := s.Release("a").String(); got != "1-3,5-7" {
		t.Errorf("released %s", got)
	}
	if got := s.Release("a"); got.Size() != 0 || !s.Shared().Equals(s.machine.All()) {
		t.Errorf("released %s again, shared %s", got, s.Shared())
	}
}

func TestNobodyAlone(t *testing.T) {
	none, err := New(Config{Machine: grid(1, 1, 4, 1), Policy: PolicyNone})
	if err != nil {
		t.Fatal(err)
	}
	burstable, level := pod("b", "app=2"), pod("l", "app=2")
	delete(burstable.Spec.Containers[0].Resources.Limits, corev1.ResourceMemory)
	two := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
	level.Spec.Resources = &corev1.ResourceRequirements{Requests: two, Limits: two}
	empty, stated := pod("e", "app=2"), pod("s", "app=2")
	empty.Spec.Resources = &corev1.ResourceRequirements{}
	stated.Status.QOSClass = corev1.PodQOSBurstable
	for _, c := range []struct {
		name  string
		state *State
		pod   *corev1.Pod
	}{
		{"policy none", none, pod("a", "app=2")},
		{"a Burstable pod", static(t, grid(1, 1, 4, 1), "0"), burstable},
		{"Burstable as the API server says", static(t, grid(1, 1, 4, 1), "0"), stated},
		{"BestEffort as a whole", static(t, grid(1, 1, 4, 1), "0"), empty},
		{"a pod with resources of its own", static(t, grid(1, 1, 4, 1), "0"), level},
		{"no CPUs asked for", static(t, grid(1, 1, 4, 1), "0"), pod("z", "app=0")},
	} {
		got, err := run(c.state, c.pod)
		if got != "app=" || err != nil || len(c.state.Entries()) > 0 {
			t.Errorf("%s: %s, %v, %v", c.name, got, err, c.state.Entries())
		}
		if h := c.state.Hints(c.pod, &c.pod.Spec.Containers[0]); h != nil || c.state.PodHints(c.pod) != nil {
			t.Errorf("%s: hints %v", c.name, h)
		}
	}
	if none.Shared().Size()+none.Allocatable().Size()+none.Available().Size() != 0 || none.Policy() == PolicyStatic {
		t.Error("policy none has sets of CPUs")
	}
}

func TestAffinity(t *testing.T) {
	for _, c := range []struct {
		nodes   numa.Mask
		count   string
		options []string
		want    string
	}{
		{numa.NewMask(1), "2", nil, "app=2-3"},
		{numa.NewMask(3), "2", nil, "app=6-7"},
		{numa.NewMask(3), "3", nil, "app=4,6-7"},
		{numa.NewMask(3), "3", []string{optionAlignSocket}, "app=4-6"},
		{numa.NewMask(0, 1), "3", nil, "app=1-3"},
	} {
		s := static(t, grid(2, 2, 2, 1), "0", c.options...)
		p := pod("a", "app="+c.count)
		got, err := s.Allocate(p, &p.Spec.Containers[0], c.nodes)
		if text := "app=" + got.String(); err != nil || text != c.want {
			t.Errorf("%s of the nodes %s %v: %s, %v, want %s", c.count, c.nodes, c.options, text, err, c.want)
		}
	}
}

// Pods come and go on machines of all kinds, and the daemon restarts: no CPU is lost, none has two owners, everybody
// keeps what they have, and in the end all are free.
func TestLives(t *testing.T) {
	options := [][]string{
		nil,
		{optionFullCores},
		{optionAcrossNUMA, optionFullCores},
		{optionAlignCaches},
		{optionAcrossCores},
		{optionAlignSocket, optionStrictReservation},
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 6))
		m := grid(1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(4), 1+r.IntN(2))
		m.CPUs[len(m.CPUs)] = machine.CPU{Core: len(m.CPUs)} // a core of another kind
		reserved, chosen := fmt.Sprint(r.IntN(len(m.CPUs))), options[r.IntN(len(options))]
		s := static(t, m, reserved, chosen...)
		pods := map[types.UID]*corev1.Pod{}
		ends := func(_ types.UID, name string) bool { return strings.HasPrefix(name, "init") }
		for i := range 30 {
			p := inventPod(r, i)
			for c := range podspec.InitAndMain(&p.Spec) {
				got, err := s.Allocate(p, c, numa.Mask(r.IntN(8)))
				if err != nil {
					break
				}
				if s.options.fullCores && s.machine.WholeCores(got).Size() != got.Size() {
					t.Fatalf("seed %d: %s has half cores: %s", seed, c.Name, got)
				}
			}
			pods[p.UID] = p
			for uid := range pods {
				if r.IntN(4) == 0 {
					s.Release(uid)
					delete(pods, uid)
				}
			}
			if r.IntN(4) == 0 {
				next := static(t, m, reserved, chosen...)
				if released := next.Adopt(PolicyStatic, s.Entries()); len(released) > 0 || !next.Shared().Equals(s.Shared()) {
					t.Fatalf("seed %d: a restart releases %v and shares %s, not %s", seed, released, next.Shared(), s.Shared())
				}
				s = next
			}
			if err := s.broken(ends); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		for uid := range pods {
			s.Release(uid)
		}
		if err := s.broken(ends); err != nil || len(s.Entries()) > 0 || !s.Available().Equals(s.Allocatable()) {
			t.Fatalf("seed %d: %v, %v", seed, err, s.Entries())
		}
	}
}

// Where a thread is offline, or cores of two kinds are built in, whole cores are found as long as there are some.
func TestWholeCoresOfUnequalSize(t *testing.T) {
	m := grid(1, 1, 4, 2)
	delete(m.CPUs, 7)
	s := static(t, m, "0,4", "full-pcpus-only")
	for _, uid := range []string{"a", "b"} {
		p := pod(uid, "app=2")
		if got, err := s.Allocate(p, &p.Spec.Containers[0], 0); err != nil || got.Size() != 2 ||
			s.machine.WholeCores(got).Size() != 2 {
			t.Errorf("got %s, %v; want the two threads of a core", got, err)
		}
	}
	p := pod("c", "app=1")
	if got, err := s.Allocate(p, &p.Spec.Containers[0], 0); err != nil || got.String() != "3" {
		t.Errorf("got %s, %v; want the core with one thread", got, err)
	}
}

func inventPod(r *rand.Rand, i int) *corev1.Pod {
	var list []string
	for j := range r.IntN(3) {
		list = append(list, fmt.Sprintf("%s%d=%d", []string{"init", "sidecar"}[r.IntN(2)], j, r.IntN(5)))
	}
	for j := range 1 + r.IntN(2) {
		list = append(list, fmt.Sprintf("app%d=%d", j, r.IntN(5)))
	}
	return pod(fmt.Sprint("pod", i), list...)
}
