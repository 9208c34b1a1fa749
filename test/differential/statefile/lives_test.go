package statefile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
)

// life is what TestLives of internal/memory reads; the names of its fields are the keys of its JSON.
type life struct {
	Nodes    []lifeNode
	Reserved map[int]map[corev1.ResourceName]uint64
	Pods     map[string]*corev1.Pod
	Steps    []step
}

type lifeNode struct {
	ID        int
	Memory    uint64
	HugePages map[uint64]uint64
}

type hint struct {
	Nodes     []int
	Preferred bool
}

type block struct {
	Nodes []int
	Type  corev1.ResourceName
	Size  uint64
}

type table struct{ Total, SystemReserved, Allocatable, Reserved, Free uint64 }

type nodeState struct {
	Assignments int
	Memory      map[corev1.ResourceName]table
	Cells       []int
}

type step struct {
	Do, Pod, Container string
	Affinity           hint
	Hints              map[corev1.ResourceName][]hint
	Blocks             []block
	Error              string
	Machine            map[int]nodeState
	Entries            map[string]map[string][]block
}

// kubelet is the memory manager's policy with its state.
type kubelet struct {
	t        *testing.T
	life     *life
	policy   memorymanager.Policy
	state    memorystate.State
	affinity *topologymanager.TopologyHint
}

// chosen is a topology manager that has chosen an affinity.
type chosen struct {
	topologymanager.Store
	affinity *topologymanager.TopologyHint
}

func (c chosen) GetAffinity(string, string) topologymanager.TopologyHint { return *c.affinity }

func newKubelet(t *testing.T, l *life) *kubelet {
	k := &kubelet{
		t: t, life: l, state: memorystate.NewMemoryState(klog.Background()), affinity: &topologymanager.TopologyHint{},
	}
	k.restart()
	return k
}

// restart starts another policy, which has to accept the state as it is.
func (k *kubelet) restart() {
	k.t.Helper()
	machine := machineInfo(k.life.Nodes)
	var err error
	log := klog.Background()
	k.policy, err = memorymanager.NewPolicyStatic(log, machine, k.life.Reserved, chosen{affinity: k.affinity})
	if err == nil {
		err = k.policy.Start(log, k.state)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

func machineInfo(nodes []lifeNode) *cadvisorapi.MachineInfo {
	machine := &cadvisorapi.MachineInfo{}
	for _, n := range nodes {
		node := cadvisorapi.Node{Id: n.ID, Memory: n.Memory}
		for size, count := range n.HugePages {
			node.HugePages = append(node.HugePages, cadvisorapi.HugePagesInfo{PageSize: size >> 10, NumPages: count})
		}
		machine.Topology = append(machine.Topology, node)
	}
	return machine
}

// do does a step and fills in what comes of it.
func (k *kubelet) do(s *step) {
	k.t.Helper()
	pod, log := k.life.Pods[s.Pod], klog.Background()
	switch s.Do {
	case "hints":
		s.Hints = hintsOf(k.policy.GetTopologyHints(log, k.state, pod, containerOf(pod, s.Container)))
	case "podHints":
		s.Hints = hintsOf(k.policy.GetPodTopologyHints(log, k.state, pod))
	case "allocate":
		*k.affinity = topologymanager.TopologyHint{Preferred: s.Affinity.Preferred}
		if len(s.Affinity.Nodes) > 0 {
			k.affinity.NUMANodeAffinity, _ = bitmask.NewBitMask(s.Affinity.Nodes...)
		}
		if err := k.policy.Allocate(log, k.state, pod, containerOf(pod, s.Container)); err != nil {
			s.Error = err.Error()
		} else {
			s.Blocks = blocks(k.state.GetMemoryBlocks(s.Pod, s.Container))
		}
	case "starting": // as the manager's AddContainer
		for _, c := range pod.Spec.InitContainers {
			if c.RestartPolicy == nil {
				k.policy.RemoveContainer(log, k.state, s.Pod, c.Name)
			}
		}
	case "release":
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			k.policy.RemoveContainer(log, k.state, s.Pod, c.Name)
		}
	case "restart":
		k.restart()
	}
	s.Machine, s.Entries = k.machine(), map[string]map[string][]block{}
	for uid, containers := range k.state.GetMemoryAssignments() {
		s.Entries[uid] = map[string][]block{}
		for name, list := range containers {
			s.Entries[uid][name] = blocks(list)
		}
	}
}

func (k *kubelet) machine() map[int]nodeState {
	nodes := map[int]nodeState{}
	for id, n := range k.state.GetMachineState() {
		tables := map[corev1.ResourceName]table{}
		for name, t := range n.MemoryMap {
			tables[name] = table{t.TotalMemSize, t.SystemReserved, t.Allocatable, t.Reserved, t.Free}
		}
		nodes[id] = nodeState{n.NumberOfAssignments, tables, n.Cells}
	}
	return nodes
}

// blocks are in the order of types; the kubelet's order is that of a map.
func blocks(of []memorystate.Block) []block {
	var list []block
	for _, b := range of {
		list = append(list, block{b.NUMAAffinity, b.Type, b.Size})
	}
	slices.SortFunc(list, func(a, b block) int { return cmp.Compare(a.Type, b.Type) })
	return list
}

func hintsOf(of map[string][]topologymanager.TopologyHint) map[corev1.ResourceName][]hint {
	if of == nil {
		return nil
	}
	made := map[corev1.ResourceName][]hint{}
	for name, list := range of {
		for _, h := range list {
			made[corev1.ResourceName(name)] = append(made[corev1.ResourceName(name)],
				hint{h.NUMANodeAffinity.GetBits(), h.Preferred})
		}
	}
	return made
}

func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func write(t *testing.T, path string, l life) {
	t.Helper()
	data, err := json.Marshal(l) //nolint:musttag // the keys are the names of the fields
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// KUBELOT_LIVES is where TestSameLives leaves its lives; internal/memory keeps some of them in its testdata.
func TestSameLives(t *testing.T) {
	dir := t.TempDir()
	if given := os.Getenv("KUBELOT_LIVES"); given != "" {
		dir = given
	}
	const lives = 160
	done, refused := map[string]int{}, map[string]int{}
	for seed := range int64(lives) {
		l := newLife(t, seed, 2+int(seed)%40)
		for _, s := range l.Steps {
			done[s.Do]++
			if s.Error != "" {
				refused[s.Error]++
			}
		}
		write(t, filepath.Join(dir, fmt.Sprintf("%03d.json", seed)), l)
	}
	t.Logf("steps: %v, refused: %v", done, refused)
	if len(refused) < 4 || done["allocate"] < lives || done["restart"] < lives {
		t.Errorf("lives are dull")
	}
	out, ok := kubelot(t, "memory", "TestLives", "KUBELOT_LIVES", dir)
	if want := fmt.Sprintf("lives: %d\n", lives); !ok || !strings.Contains(out, want) {
		t.Errorf("want %s%s", want, tail(out))
	}
}

// A life that the kubelet doesn't live makes kubelot's test fail: else TestSameLives would prove nothing.
func TestAnotherLife(t *testing.T) {
	dir, l := t.TempDir(), newLife(t, 1, 20)
	for i := range l.Steps {
		if s := &l.Steps[i]; s.Do == "allocate" && len(s.Blocks) > 0 {
			s.Blocks[0].Size++
		}
	}
	write(t, filepath.Join(dir, "0.json"), l)
	if out, ok := kubelot(t, "memory", "TestLives", "KUBELOT_LIVES", dir); ok {
		t.Errorf("kubelot lives it:\n%s", tail(out))
	}
}
