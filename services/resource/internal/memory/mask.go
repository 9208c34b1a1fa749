package memory

import "math/bits"

// maxNode is the highest NUMA node that a mask has a bit for.
const maxNode = 63

// mask is a set of NUMA nodes.
type mask uint64

// maskOf reports false where the list isn't a set of nodes from 0 to maxNode, or is empty.
func maskOf(nodes []int) (mask, bool) {
	var m mask
	for _, id := range nodes {
		if id < 0 || id > maxNode || m.has(id) {
			return 0, false
		}
		m |= 1 << id
	}
	return m, m != 0
}

func (m mask) has(id int) bool { return m&(1<<id) != 0 }

func (m mask) count() int { return bits.OnesCount64(uint64(m)) }

// nodes are the mask's, ascending.
func (m mask) nodes() []int {
	nodes := make([]int, 0, m.count())
	for rest := m; rest != 0; rest &= rest - 1 {
		nodes = append(nodes, bits.TrailingZeros64(uint64(rest)))
	}
	return nodes
}

// maxSets bounds the sets that are visited: 16 nodes have fewer.
const maxSets = 1 << 16

// subsets calls visit with all sets of the nodes: small ones first, those of a size in the order of their lists. Of
// many nodes the larger sets are left out, but for that of all.
func subsets(nodes []int, visit func(mask)) {
	sets, total := 1, 0 // sets are those of a size
	for size := 1; size <= len(nodes); size++ {
		sets = sets * (len(nodes) - size + 1) / size
		if total += sets; total > maxSets {
			size = len(nodes)
		}
		choose(nodes, size, 0, visit)
	}
}

func choose(nodes []int, size int, chosen mask, visit func(mask)) {
	if size == 0 {
		visit(chosen)
		return
	}
	for i := 0; i+size <= len(nodes); i++ {
		choose(nodes[i+1:], size-1, chosen|1<<nodes[i], visit)
	}
}
