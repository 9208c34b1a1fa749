package numa

import (
	"iter"
	"math/bits"
	"slices"

	"k8s.io/utils/cpuset"
)

// maxNode is the largest ID of a NUMA node that a Mask can hold.
const maxNode = 63

// Mask is a set of NUMA nodes, a bit for each.
type Mask uint64

// NewMask is the set of the nodes. IDs that a mask can't hold are left out; New refuses machines that have them.
func NewMask(nodes ...int) Mask {
	var m Mask
	for _, n := range nodes {
		if n >= 0 && n <= maxNode {
			m |= 1 << n
		}
	}
	return m
}

// Nodes are the nodes of the set, in order.
func (m Mask) Nodes() []int {
	nodes := make([]int, 0, m.Count())
	for rest := uint64(m); rest != 0; rest &= rest - 1 {
		nodes = append(nodes, bits.TrailingZeros64(rest))
	}
	return nodes
}

// Count is the number of nodes.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// String is the set as a list, such as 0-1,4.
func (m Mask) String() string { return cpuset.New(m.Nodes()...).String() }

// narrower orders masks by how many nodes they have, then by value: of two that are as wide, the one whose highest
// differing node is the lower one comes first.
func narrower(a, b Mask) bool {
	if a.Count() != b.Count() {
		return a.Count() < b.Count()
	}
	return a < b
}

// Masks are all sets of one or more of the nodes, the smaller ones first, and those of one size in the order of the
// nodes.
func Masks(nodes []int) iter.Seq[Mask] {
	return func(yield func(Mask) bool) {
		for size := 1; size <= len(nodes); size++ {
			for subset := range Subsets(nodes, size) {
				if !yield(NewMask(subset...)) {
					return
				}
			}
		}
	}
}

// Subsets are all choices of so many of the items, in the order of the items. Each is a slice of its own.
func Subsets(items []int, size int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		if size < 1 || size > len(items) {
			return
		}
		// at has the positions of the current choice.
		at := make([]int, size)
		for i := range at {
			at[i] = i
		}
		for {
			subset := make([]int, size)
			for i, p := range at {
				subset[i] = items[p]
			}
			if !yield(subset) || !advance(at, len(items)) {
				return
			}
		}
	}
}

// advance moves positions among n items to the next choice, and reports whether there is one.
func advance(at []int, n int) bool {
	for i := range slices.Backward(at) {
		if at[i] < n-len(at)+i {
			at[i]++
			for j := i + 1; j < len(at); j++ {
				at[j] = at[j-1] + 1
			}
			return true
		}
	}
	return false
}
