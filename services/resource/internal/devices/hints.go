package devices

import (
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/resource"
)

// maxHintNodes bounds the sets of NUMA nodes that are tried: there are 2 to the power of it.
const maxHintNodes = 16

// Hint is a set of NUMA nodes from which a container can have all that it wants of a resource.
type Hint struct {
	// Nodes are sorted.
	Nodes []int
	// Preferred is true where no smaller set could do it on an empty machine.
	Preferred bool
}

// Hints are the sets of NUMA nodes from which the container can have its devices, by resource: the smaller sets first,
// those of one size in the order of their nodes. Nil stands for no preference, an empty list for what is impossible.
// machine are the NUMA nodes of the machine.
func (b *Book) Hints(pod *corev1.Pod, container string, machine []int) map[string][]Hint {
	hints := map[string][]Hint{}
	for _, n := range b.Needs(pod) {
		if n.Container == container {
			q := Request{Pod: pod, Need: n}
			has := b.assigned(string(pod.UID), container, n.Resource)
			hints[n.Resource] = b.hints(n, has, b.reusable(q), machine)
		}
	}
	return hints
}

// PodHints are as Hints, for all containers of the pod together.
func (b *Book) PodHints(pod *corev1.Pod, machine []int) map[string][]Hint {
	hints := map[string][]Hint{}
	for name, count := range b.podNeeds(pod) {
		has := sets.New(idsOf(b.pods[string(pod.UID)], name)...)
		hints[name] = b.hints(Need{Resource: name, Count: count}, has, sets.New[string](), machine)
	}
	return hints
}

// podNeeds is how many devices the pod needs at a time, by resource.
func (b *Book) podNeeds(pod *corev1.Pod) map[string]int {
	wanted := sets.New[string]()
	for _, n := range b.Needs(pod) {
		wanted.Insert(n.Resource)
	}
	own := pod.DeepCopy()
	for c := range containers(own) {
		for name := range c.Resources.Limits {
			if claimed(own, c.Name, string(name)) {
				delete(c.Resources.Limits, name)
			}
		}
	}
	needs := map[string]int{}
	for name, q := range resource.PodLimits(own, resource.PodResourcesOptions{ExcludeOverhead: true}) {
		if wanted.Has(string(name)) {
			needs[string(name)] = int(q.Value())
		}
	}
	return needs
}

// hints finds the sets of nodes. What the containers have already is the answer where it is there.
func (b *Book) hints(n Need, has, reusable sets.Set[string], machine []int) []Hint {
	r := b.resources[n.Resource]
	nodes := r.nodes(machine)
	if len(nodes) == 0 || len(nodes) > maxHintNodes {
		return nil
	}
	free := has
	if has.Len() == 0 {
		free = r.healthy().Difference(b.used(n.Resource))
		reusable = reusable.Intersection(r.healthy())
	} else {
		reusable = sets.New[string]()
	}
	if has.Len() > 0 && has.Len() != n.Count || free.Len()+reusable.Len() < n.Count {
		return []Hint{}
	}
	t := r.tally(nodes, free, reusable)
	return t.hints(nodes, n.Count)
}

// nodes are the machine's NUMA nodes to which devices of the resource are near, sorted.
func (r *inventory) nodes(machine []int) []int {
	near := sets.New[int]()
	if r != nil {
		for _, d := range r.devices {
			near.Insert(d.Nodes...)
		}
	}
	return sets.List(near.Intersection(sets.New(machine...)))
}

// tally counts devices by the nodes to which they are near. A set of nodes has a bit for each position in their list.
type tally struct {
	all, free map[uint32]int
	// reusable are the nodes of each device that should be reused.
	reusable []uint32
}

func (r *inventory) tally(nodes []int, free, reusable sets.Set[string]) tally {
	t := tally{all: map[uint32]int{}, free: map[uint32]int{}}
	for id, d := range r.devices {
		var set uint32
		for i, node := range nodes {
			if slices.Contains(d.Nodes, node) {
				set |= 1 << i
			}
		}
		t.all[set]++
		switch {
		case free.Has(id):
			t.free[set]++
		case reusable.Has(id) && set != 0:
			t.reusable = append(t.reusable, set)
		}
	}
	return t
}

// hints tries all sets of nodes.
func (t tally) hints(nodes []int, count int) []Hint {
	hints, smallest := []Hint{}, len(nodes)
	for _, set := range subsets(len(nodes)) {
		size := bits.OnesCount32(set)
		if size < smallest && within(t.all, set) >= count {
			smallest = size
		}
		if t.suffices(set, count) {
			h := Hint{Nodes: make([]int, 0, size)}
			for i, node := range nodes {
				if set&(1<<i) != 0 {
					h.Nodes = append(h.Nodes, node)
				}
			}
			hints = append(hints, h)
		}
	}
	for i := range hints {
		hints[i].Preferred = len(hints[i].Nodes) == smallest
	}
	return hints
}

// suffices reports whether so many devices can be had from the nodes. All that are to be reused must be near to them.
func (t tally) suffices(set uint32, count int) bool {
	for _, device := range t.reusable {
		if device&set == 0 {
			return false
		}
	}
	return within(t.free, set)+len(t.reusable) >= count
}

// within counts the devices that are near to one of the nodes.
func within(devices map[uint32]int, set uint32) (n int) {
	for near, count := range devices {
		if near&set != 0 {
			n += count
		}
	}
	return n
}

// subsets are all sets of the first n bits but the empty one: the smaller first, those of one size in the order of the
// lists of their bits.
func subsets(n int) (all []uint32) {
	var grow func(set uint32, from, left int)
	grow = func(set uint32, from, left int) {
		if left == 0 {
			all = append(all, set)
			return
		}
		for i := from; i < n; i++ {
			grow(set|1<<i, i+1, left-1)
		}
	}
	for size := 1; size <= n; size++ {
		grow(0, 0, size)
	}
	return all
}
