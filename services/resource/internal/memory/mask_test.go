package memory

import "testing"

// Of few nodes all sets are visited, of many the smaller ones and that of all.
func TestSubsetsAreBounded(t *testing.T) {
	for _, c := range []struct{ nodes, sets, sizes int }{
		{1, 1, 1}, {4, 15, 4}, {16, 1<<16 - 1, 16}, {17, 1 << 16, 9}, {64, 43745, 4},
	} {
		var ids []int
		for id := range c.nodes {
			ids = append(ids, id)
		}
		seen, sizes := map[mask]bool{}, map[int]bool{}
		subsets(ids, func(m mask) { seen[m], sizes[m.count()] = true, true })
		if len(seen) != c.sets || len(sizes) != c.sizes || !sizes[c.nodes] {
			t.Errorf("of %d nodes %d sets of %d sizes are visited, want %d of %d", c.nodes, len(seen), len(sizes), c.sets,
				c.sizes)
		}
	}
}

// A machine of 40 nodes gives memory of one of them, of several, or of all.
func TestManyNodes(t *testing.T) {
	for memory, want := range map[int]int{2: 1, 7: 2, 100: 40} {
		s := newState(t, 40)
		pod := newPod("a", nil, container("c", memory, 0))
		blocks, err := s.Allocate(pod, &pod.Spec.Containers[0], Hint{})
		if err != nil || len(blocks) != 1 || len(blocks[0].Nodes) != want {
			t.Errorf("%d Gi: %v, %v, want %d nodes", memory, blocks, err, want)
		}
	}
}
