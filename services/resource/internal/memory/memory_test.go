package memory

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

const (
	gi   = 1 << 30
	huge = corev1.ResourceName("hugepages-1Gi")
)

// node4 is a node with 11 Gi of memory: 1 Gi of it are reserved, 6 Gi can be had, and 4 Gi are huge pages.
func node4(id int) Node {
	return Node{ID: id, Memory: 11 * gi, HugePages: map[uint64]uint64{gi: 4}}
}

func newState(t *testing.T, nodes int) *State {
	t.Helper()
	var list []Node
	reserved := Reserved{}
	for id := range nodes {
		list = append(list, node4(id))
		reserved[id] = map[corev1.ResourceName]uint64{corev1.ResourceMemory: gi}
	}
	s, err := New(PolicyStatic, list, reserved)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// container asks for CPU and for these Gi of memory and of huge pages.
func container(name string, memory, pages int) corev1.Container {
	list := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("1"),
		corev1.ResourceMemory: *resource.NewQuantity(int64(memory)*gi, resource.BinarySI),
	}
	if pages > 0 {
		list[huge] = *resource.NewQuantity(int64(pages)*gi, resource.BinarySI)
	}
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}
}

func sidecar(c corev1.Container) corev1.Container {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func newPod(uid string, init []corev1.Container, containers ...corev1.Container) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: init, Containers: containers}}
	pod.UID = types.UID(uid)
	return pod
}

// allocate allocates for all containers of the pod, and returns what each has in the end.
func allocate(s *State, pod *corev1.Pod, affinity Hint) (string, error) {
	var lines []string
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for range 2 { // allocating again changes nothing
				if _, err := s.Allocate(pod, &list[i], affinity); err != nil {
					return "", err
				}
			}
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			line := list[i].Name + ":"
			for _, b := range s.Blocks(string(pod.UID), list[i].Name) {
				line += fmt.Sprintf(" %s %d %v", b.Type, b.Size/gi, b.Nodes)
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; "), nil
}

func TestAllocate(t *testing.T) {
	any1, any2 := Hint{}, Hint{Preferred: true}
	for name, tt := range map[string]struct {
		before   []*corev1.Pod // each with the affinity any1
		pod      *corev1.Pod
		affinity Hint
		want     string
	}{
		"the lowest node": {pod: newPod("p", nil, container("a", 2, 0)), want: "a: memory 2 [0]"},
		"huge pages": {
			pod: newPod("p", nil, container("a", 2, 3), container("b", 1, 2)), affinity: any2,
			want: "a: hugepages-1Gi 3 [0] memory 2 [0]; b: hugepages-1Gi 2 [1] memory 1 [1]",
		},
		"the affinity": {
			pod: newPod("p", nil, container("a", 2, 0)), affinity: Hint{Nodes: []int{2}, Preferred: true},
			want: "a: memory 2 [2]",
		},
		"an affinity of more nodes than it takes": {
			pod: newPod("p", nil, container("a", 2, 0)), affinity: Hint{Nodes: []int{2, 1}},
			want: "a: memory 2 [1 2]",
		},
		"a group":  {pod: newPod("p", nil, container("a", 13, 0)), affinity: any2, want: "a: memory 13 [0 1 2]"},
		"extended": {pod: newPod("p", nil, container("a", 9, 0)), affinity: Hint{Nodes: []int{1}}, want: "a: memory 9 [0 1]"},
		"extended though it is preferred": {
			before: []*corev1.Pod{newPod("o", nil, container("a", 5, 0))}, pod: newPod("p", nil, container("a", 3, 0)),
			affinity: Hint{Nodes: []int{0}, Preferred: true},
			want:     "[memorymanager] failed to find NUMA nodes to extend the current topology hint",
		},
		"nothing is left": {
			before: []*corev1.Pod{
				newPod("o", nil, container("a", 4, 0), container("b", 4, 0)), newPod("q", nil, container("a", 10, 0)),
			},
			pod: newPod("p", nil, container("a", 3, 0)), affinity: any2,
			want: "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
		},
		"no default that is preferred": {
			before: []*corev1.Pod{newPod("o", nil, container("a", 9, 0)), newPod("q", nil, container("a", 5, 0),
				container("b", 5, 0))},
			pod: newPod("p", nil, container("a", 3, 0)), affinity: any2,
			want: "[memorymanager] failed to find the default preferred hint",
		},
		"nodes of a group join it": {
			before: []*corev1.Pod{newPod("o", nil, container("a", 9, 0))}, pod: newPod("p", nil, container("a", 3, 0)),
			affinity: Hint{Nodes: []int{1}}, want: "a: memory 3 [0 1]",
		},
		"some nodes of a group join it": {
			before: []*corev1.Pod{newPod("o", nil, container("a", 13, 0))}, pod: newPod("p", nil, container("a", 3, 0)),
			affinity: Hint{Nodes: []int{1, 2}}, want: "a: memory 3 [0 1 2]",
		},
		"a group is no preferred extension": {
			before: []*corev1.Pod{newPod("o", nil, container("a", 13, 0))}, pod: newPod("p", nil, container("a", 3, 0)),
			affinity: Hint{Nodes: []int{1}, Preferred: true},
			want:     "[memorymanager] failed to find the extended preferred hint",
		},
		"a group beside one that is used": {
			before: []*corev1.Pod{newPod("o", nil, container("a", 9, 0))}, pod: newPod("p", nil, container("a", 9, 0)),
			affinity: Hint{Nodes: []int{1, 2}}, want: "[memorymanager] preferred hint violates NUMA node allocation",
		},
		"a node that isn't there": {
			pod: newPod("p", nil, container("a", 1, 0)), affinity: Hint{Nodes: []int{7}},
			want: "[memorymanager] failed to find NUMA nodes to extend the current topology hint",
		},
		"nonsense": {
			pod: newPod("p", nil, container("a", 1, 0)), affinity: Hint{Nodes: []int{-1}},
			want: "[memorymanager] the affinity [-1] isn't a set of NUMA nodes",
		},
		"init containers leave their memory to others": {
			pod: newPod("p", []corev1.Container{container("i", 4, 0), container("j", 3, 0)}, container("a", 2, 0),
				container("b", 3, 0)), affinity: any1,
			want: "i: memory 0 [0]; j: memory 0 [0]; a: memory 2 [0]; b: memory 3 [0]",
		},
		"sidecars leave nothing": {
			pod: newPod("p", []corev1.Container{sidecar(container("i", 4, 0))}, container("a", 3, 0)), affinity: any1,
			want: "i: memory 4 [0]; a: memory 3 [1]",
		},
		"sidecars take what others leave": {
			pod:  newPod("p", []corev1.Container{container("i", 4, 0), sidecar(container("s", 3, 0))}, container("a", 3, 0)),
			want: "i: memory 0 [0]; s: memory 3 [0]; a: memory 3 [0]",
		},
		"not guaranteed": {pod: newPod("p", nil, corev1.Container{Name: "a"}), want: "a:"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t, 4)
			for _, pod := range tt.before {
				if _, err := allocate(s, pod, any1); err != nil {
					t.Fatal(err)
				}
			}
			before := s.Snapshot()
			got, err := allocate(s, tt.pod, tt.affinity)
			if err != nil {
				got = err.Error()
				if after := s.Snapshot(); !reflect.DeepEqual(before, after) {
					t.Errorf("refused, but the state is %+v, and was %+v", after, before)
				}
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWhoGetsNothing(t *testing.T) {
	s := newState(t, 2)
	whole := newPod("p", nil, container("a", 1, 0))
	whole.Spec.Resources = &corev1.ResourceRequirements{Limits: whole.Spec.Containers[0].Resources.Limits}
	empty, burstable := newPod("p", nil, container("a", 1, 0)), newPod("p", nil, container("a", 1, 0))
	empty.Spec.Resources = &corev1.ResourceRequirements{}
	burstable.Status.QOSClass = corev1.PodQOSBurstable
	for name, pod := range map[string]*corev1.Pod{
		"resources of the whole pod": whole, "best effort as a whole": empty, "burstable": burstable,
	} {
		c := &pod.Spec.Containers[0]
		blocks, err := s.Allocate(pod, c, Hint{})
		if blocks != nil || err != nil || s.Hints(pod, c) != nil || s.PodHints(pod) != nil {
			t.Errorf("%s: it has %v, %v, hints %v, %v", name, blocks, err, s.Hints(pod, c), s.PodHints(pod))
		}
	}
	none, err := New(PolicyNone, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pod := newPod("p", nil, container("a", 1, 0))
	blocks, err := none.Allocate(pod, &pod.Spec.Containers[0], Hint{Nodes: []int{0}})
	if blocks != nil || err != nil || none.PodHints(pod) != nil || none.Allocatable() != nil {
		t.Errorf("policy None: it has %v, %v", blocks, err)
	}
	released := none.Adopt(Entries{"p": {"a": {{Nodes: []int{0}, Type: "memory", Size: 1}}}})
	want := []Released{{UID: "p", Container: "a", Why: "the memory manager's policy is None"}}
	if !reflect.DeepEqual(released, want) || len(none.Snapshot().Entries) > 0 {
		t.Errorf("policy None: released %v", released)
	}
}

func TestHints(t *testing.T) {
	s := newState(t, 2)
	pod := newPod("p", []corev1.Container{container("i", 5, 0)}, container("a", 2, 1), container("b", 3, 0))
	single := []Hint{{Nodes: []int{0}, Preferred: true}, {Nodes: []int{1}, Preferred: true}, {Nodes: []int{0, 1}}}
	got := s.Hints(pod, &pod.Spec.Containers[0])
	if want := map[corev1.ResourceName][]Hint{"memory": single, huge: single}; !reflect.DeepEqual(got, want) {
		t.Errorf("container: %v", got)
	}
	if got := s.PodHints(pod); !reflect.DeepEqual(got[huge], single) || len(got) != 2 {
		t.Errorf("pod: %v", got)
	}
	if _, err := allocate(s, pod, Hint{Nodes: []int{1}}); err != nil {
		t.Fatal(err)
	}
	if got := s.Hints(pod, &pod.Spec.Containers[1]); !reflect.DeepEqual(got, map[corev1.ResourceName][]Hint{
		"memory": {{Nodes: []int{1}, Preferred: true}},
	}) {
		t.Errorf("what it has: %v", got)
	}
	// The sidecar runs beside the init container, which needs more than the main container.
	beside := newPod("r", []corev1.Container{sidecar(container("s", 3, 0)), container("i", 4, 0)}, container("a", 2, 0))
	s.Release("p")
	if got := s.PodHints(beside)["memory"]; !reflect.DeepEqual(got, []Hint{{Nodes: []int{0, 1}, Preferred: true}}) {
		t.Errorf("a sidecar: %v", got)
	}
	large := newPod("q", nil, container("a", 13, 0))
	if got := s.Hints(large, &large.Spec.Containers[0]); got == nil || len(got) != 0 {
		t.Errorf("what nobody has: %v", got)
	}
}

func TestStartingAndRelease(t *testing.T) {
	s := newState(t, 1)
	empty := s.Snapshot()
	pod := newPod("p", []corev1.Container{container("i", 4, 1)}, container("a", 2, 0))
	if _, err := allocate(s, pod, Hint{}); err != nil {
		t.Fatal(err)
	}
	if s.Starting(pod, "i") || s.nodes[0].free(corev1.ResourceMemory) != 2*gi {
		t.Errorf("the init container's own start gives something back: %+v", s.Snapshot())
	}
	if !s.Starting(pod, "a") || s.nodes[0].free(corev1.ResourceMemory) != 4*gi || s.nodes[0].free(huge) != 4*gi {
		t.Errorf("what the init container has left isn't given back: %+v", s.Snapshot())
	}
	if hints := s.Hints(pod, &pod.Spec.InitContainers[0]); hints != nil {
		t.Errorf("hints for a container that has ended: %v", hints)
	}
	// After a restart of the daemon all containers are allocated again.
	if got, err := allocate(s, pod, Hint{}); err != nil || got != "i:; a: memory 2 [0]" || s.Starting(pod, "a") {
		t.Errorf("%s, %v", got, err)
	}
	if nodes := s.MemoryNodes("p", "a"); !reflect.DeepEqual(nodes, []int{0}) || s.MemoryNodes("p", "i") != nil {
		t.Errorf("nodes %v, %v", nodes, s.MemoryNodes("p", "i"))
	}
	if pods := s.Pods(); !reflect.DeepEqual(pods, []string{"p"}) {
		t.Errorf("pods %v", pods)
	}
	if !s.Release("p") || s.Release("p") {
		t.Error("it isn't released once")
	}
	if after := s.Snapshot(); !reflect.DeepEqual(after, empty) {
		t.Errorf("released, but the state is %+v", after)
	}
}

func TestAdopt(t *testing.T) {
	block := func(size uint64, name corev1.ResourceName, nodes ...int) Block {
		return Block{Nodes: nodes, Type: name, Size: size}
	}
	s := newState(t, 3)
	released := s.Adopt(Entries{
		"a": {
			"1": {block(4*gi, "memory", 0), block(gi, huge, 0)}, "2": {block(2*gi, "memory", 0)},
			"3": {block(1, "memory", 0)},
		},
		"b": {
			"1": {block(8*gi, "memory", 2, 1)}, "2": {block(0, "memory", 1)}, "3": {block(gi, "memory", 0, 1)},
			"4": {block(2*gi, huge, 1, 2), block(1<<63, "memory", 1, 2)}, "5": {block(8*gi, huge, 1, 2)},
		},
		"c": {"1": {block(1, "memory", 3)}, "2": {block(1, "hugepages-2Mi", 0)}, "3": {block(1, "memory")}, "4": nil},
		"d": {"1": {block(1, "memory", 0, 0)}, "2": {block(1, "memory", 64)}},
	})
	var got []string
	for _, r := range released {
		got = append(got, r.UID+r.Container+": "+r.Why)
	}
	want := []string{
		"a3: it has 1 bytes of memory of NUMA node 0, which has 0 left",
		"b2: NUMA node 1 is used alone or in another group",
		"b3: NUMA node 0-1 is used alone or in another group",
		"b4: it has 9223372036854775808 bytes of memory of NUMA node 1-2, which has 4294967296 left",
		"c1: the machine has no NUMA node 3",
		`c2: NUMA node 0 has no memory of the type "hugepages-2Mi"`,
		"c3: [] isn't a set of NUMA nodes",
		"c4: its entry is empty",
		"d1: [0 0] isn't a set of NUMA nodes",
		"d2: [64] isn't a set of NUMA nodes",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("released\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if kept := s.Blocks("a", "1"); len(kept) != 2 || s.nodes[0].free(huge) != 3*gi || s.nodes[0].assignments != 3 {
		t.Errorf("kept %v, state %+v", kept, s.Snapshot())
	}
	if !reflect.DeepEqual(s.MemoryNodes("b", "1"), []int{1, 2}) || s.nodes.freeOf([]int{1, 2}, huge) != 0 {
		t.Errorf("kept %v", s.Snapshot())
	}
}
