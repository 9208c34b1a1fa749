package memory

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// What random pods do with a machine leaves its books right.
func TestBooksAreRight(t *testing.T) {
	for seed := range int64(200) {
		r := rand.New(rand.NewSource(seed))
		s := newState(t, 1+r.Intn(4))
		empty := s.Snapshot()
		for n := range 60 {
			uid := fmt.Sprint("pod", r.Intn(6))
			if r.Intn(3) == 0 || len(s.entries[uid]) > 0 {
				s.Release(uid)
			} else {
				live(t, r, s, uid)
			}
			if err := audit(s); err != nil {
				t.Fatalf("seed %d, step %d: %v\n%+v", seed, n, err, s.Snapshot())
			}
		}
		for _, uid := range s.Pods() {
			s.Release(uid)
		}
		if after := s.Snapshot(); !reflect.DeepEqual(after, empty) {
			t.Fatalf("seed %d: all is released, but the state is %+v", seed, after)
		}
	}
}

// live allocates for a random pod, starts some of its containers, and releases it if it is refused.
func live(t *testing.T, r *rand.Rand, s *State, uid string) {
	t.Helper()
	pod := newPod(uid, nil)
	for i := range r.Intn(4) {
		c := container(fmt.Sprint("i", i), 1+r.Intn(9), r.Intn(3))
		if r.Intn(3) == 0 {
			c = sidecar(c)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range 1 + r.Intn(2) {
		pod.Spec.Containers = append(pod.Spec.Containers, container(fmt.Sprint("a", i), 1+r.Intn(9), r.Intn(3)))
	}
	affinity := Hint{Preferred: r.Intn(4) == 0}
	for id := range len(s.nodes) {
		if r.Intn(4) == 0 {
			affinity.Nodes = append(affinity.Nodes, id)
		}
	}
	if _, err := allocate(s, pod, affinity); err != nil {
		s.Release(uid)
		return
	}
	before := s.Snapshot()
	if _, err := allocate(s, pod, Hint{}); err != nil || !reflect.DeepEqual(before, s.Snapshot()) {
		t.Fatalf("allocated again: %v, %+v", err, s.Snapshot())
	}
	if r.Intn(2) == 0 {
		s.Starting(pod, "a0")
	}
}

// share is memory of a type from exactly these nodes.
type share struct {
	nodes mask
	name  corev1.ResourceName
}

// audit finds books that aren't right.
func audit(s *State) error {
	reserved, assignments := map[share]uint64{}, map[int]int{}
	for uid, containers := range s.entries {
		for name, blocks := range containers {
			for _, b := range blocks {
				m, _ := maskOf(b.Nodes)
				reserved[share{m, b.Type}] += b.Size
				for _, id := range b.Nodes {
					assignments[id]++
					if !reflect.DeepEqual(s.nodes[id].cells, b.Nodes) {
						return fmt.Errorf("%s of %s is on nodes %v, node %d is of %v", name, uid, b.Nodes, id, s.nodes[id].cells)
					}
				}
			}
		}
	}
	for id, n := range s.nodes {
		group, _ := maskOf(n.cells)
		if n.assignments != assignments[id] || n.assignments == 0 && group.count() != 1 {
			return fmt.Errorf("node %d has %d assignments, cells %v", id, n.assignments, n.cells)
		}
		for name, table := range n.memory {
			var sum uint64
			for _, other := range n.cells {
				sum += s.nodes[other].memory[name].Reserved
			}
			if sum != reserved[share{group, name}] || table.Free+table.Reserved != table.Allocatable {
				return fmt.Errorf("node %d: %d of %s is reserved, %d is used", id, sum, name, reserved[share{group, name}])
			}
		}
	}
	return nil
}
