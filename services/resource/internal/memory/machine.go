package memory

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The policies, as memoryManagerPolicy names them.
const (
	PolicyNone   = "None"
	PolicyStatic = "Static"
)

// policyBestEffort is the kubelet's policy for Windows.
const policyBestEffort = "BestEffort"

// Node is a NUMA node as the machine has it.
type Node struct {
	// ID is from 0 to 63.
	ID int
	// Memory is in bytes, that of huge pages included.
	Memory uint64
	// HugePages are how many huge pages there are, by the bytes of one.
	HugePages map[uint64]uint64
}

// Table is the memory of one type on a NUMA node, in bytes.
type Table struct {
	Total, SystemReserved uint64
	// Allocatable is for containers, Reserved is what they have of it, Free is the rest.
	Allocatable, Reserved, Free uint64
}

// NodeState is a NUMA node as a state file has it.
type NodeState struct {
	// Assignments counts blocks, one for each type of memory of each container.
	Assignments int
	Memory      map[corev1.ResourceName]Table
	// Cells are the nodes of the group that the node is used in, itself included.
	Cells []int
}

// node is a NUMA node and what is taken of it.
type node struct {
	assignments int
	memory      map[corev1.ResourceName]*Table
	cells       []int
}

func (n *node) clone() *node {
	c := &node{assignments: n.assignments, memory: map[corev1.ResourceName]*Table{}, cells: n.cells}
	for name, t := range n.memory {
		c.memory[name] = new(*t)
	}
	return c
}

func (n *node) free(name corev1.ResourceName) uint64 {
	if t := n.memory[name]; t != nil {
		return t.Free
	}
	return 0
}

func (n *node) allocatable(name corev1.ResourceName) uint64 {
	if t := n.memory[name]; t != nil {
		return t.Allocatable
	}
	return 0
}

// machine are the NUMA nodes by ID.
type machine map[int]*node

func (m machine) clone() machine {
	c := make(machine, len(m))
	for id, n := range m {
		c[id] = n.clone()
	}
	return c
}

func (m machine) ids() []int { return slices.Sorted(maps.Keys(m)) }

// hugePages is the resource of huge pages of that many bytes.
func hugePages(size uint64) corev1.ResourceName {
	return corev1.ResourceName(corev1.ResourceHugePagesPrefix +
		resource.NewQuantity(int64(size), resource.BinarySI).String())
}

// newMachine is the machine with nothing taken.
func newMachine(nodes []Node, reserved Reserved) (machine, error) {
	m := make(machine, len(nodes))
	for _, n := range nodes {
		if _, ok := maskOf([]int{n.ID}); !ok {
			return nil, fmt.Errorf("NUMA node %d: the memory manager knows nodes 0 to %d only", n.ID, maxNode)
		}
		if m[n.ID] != nil {
			return nil, fmt.Errorf("the machine has NUMA node %d twice", n.ID)
		}
		made, err := newNode(n, reserved[n.ID])
		if err != nil {
			return nil, err
		}
		m[n.ID] = made
	}
	return m, nil
}

func newNode(n Node, reserved map[corev1.ResourceName]uint64) (*node, error) {
	made := &node{memory: map[corev1.ResourceName]*Table{}, cells: []int{n.ID}}
	ordinary := n.Memory
	for size, count := range n.HugePages {
		total := size * count
		if size > 0 && total/size != count || total > ordinary {
			return nil, fmt.Errorf("NUMA node %d has %d bytes of memory, too few for its huge pages", n.ID, n.Memory)
		}
		ordinary -= total
		name := hugePages(size)
		made.memory[name] = &Table{Total: total, Allocatable: total, SystemReserved: reserved[name]}
	}
	made.memory[corev1.ResourceMemory] = &Table{
		Total: n.Memory, Allocatable: ordinary, SystemReserved: reserved[corev1.ResourceMemory],
	}
	for name, t := range made.memory {
		if t.SystemReserved > t.Allocatable {
			return nil, fmt.Errorf("NUMA node %d has %s of %s, but reservedMemory keeps %s of it: reserve less there",
				n.ID, bytes(t.Allocatable), name, bytes(t.SystemReserved))
		}
		t.Allocatable -= t.SystemReserved
		t.Free = t.Allocatable
	}
	return made, nil
}

// bytes is a size as messages have it.
func bytes(n uint64) string { return resource.NewQuantity(int64(n), resource.BinarySI).String() }

// State is what containers have of the machine's memory. It belongs to one goroutine.
type State struct {
	policy  string
	nodes   machine
	entries Entries
}

// New makes the state of a machine where nobody has anything yet. The error says what to change in the configuration.
func New(policy string, nodes []Node, reserved Reserved) (*State, error) {
	s := &State{policy: policy, entries: Entries{}}
	switch policy {
	case PolicyNone:
		return s, nil
	case policyBestEffort:
		return nil, fmt.Errorf("policy %q is not available for platform %q", policy, runtime.GOOS)
	case PolicyStatic:
	default:
		return nil, fmt.Errorf("unknown policy: %q", policy)
	}
	if !reserved.anyMemory() {
		return nil, errors.New("[memorymanager] you should specify the system reserved memory")
	}
	var err error
	if s.nodes, err = newMachine(nodes, reserved); err != nil {
		return nil, err
	}
	return s, nil
}

// Policy is the policy's name.
func (s *State) Policy() string { return s.policy }

// Allocatable is what containers can have of each NUMA node, in the order of nodes and types.
func (s *State) Allocatable() []Block {
	var blocks []Block
	for _, id := range s.nodes.ids() {
		memory := s.nodes[id].memory
		for _, name := range slices.Sorted(maps.Keys(memory)) {
			if size := memory[name].Allocatable; size > 0 {
				blocks = append(blocks, Block{Nodes: []int{id}, Type: name, Size: size})
			}
		}
	}
	return blocks
}
