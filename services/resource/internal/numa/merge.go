package numa

// Merge combines the hints of all providers and reports whether the policy admits the pod.
//
// Of each resource one hint is picked, and the picks' nodes are intersected. The result is preferred if all picks are
// preferred and have the same nodes. A preferred result is better than any other; of those, the policy's order decides
// (better). If no picks have a node in common, the affinity is all nodes, not preferred. An affinity without nodes
// (policies none and single-numa-node) means that any will do.
func Merge(p Policy, providers []ProviderHints) (affinity Hint, admit bool) {
	if p.name == PolicyNone {
		return Hint{}, true
	}
	all := lists(providers)
	if p.name == PolicySingleNUMANode {
		all = single(all)
	}
	best := p.best(combine(p.all, all), widest(all))
	if p.name == PolicySingleNUMANode && best.Nodes == p.all {
		best.Nodes = 0
	}
	return best, best.Preferred || p.name == PolicyBestEffort
}

// results are what picks of some resources can come to. Different picks come to the same, so there are never more than
// two for each set of nodes, however many picks there are.
type results struct {
	// same are the nodes that all picks have in common, and nothing else, all of them being preferred; the empty set
	// stands for picks without nodes.
	same map[Mask]bool
	// other are the intersections of all other picks. Empty ones are left out, they can't become anything.
	other map[Mask]bool
}

// combine finds what the picks of the lists can come to.
func combine(all Mask, lists [][]Hint) results {
	now := results{same: map[Mask]bool{0: true}, other: map[Mask]bool{}}
	for _, list := range lists {
		next := results{same: map[Mask]bool{}, other: map[Mask]bool{}}
		for _, h := range distinct(list) {
			for m := range now.same {
				if h.Preferred && (h.Nodes == m || h.Nodes == 0 || m == 0) {
					next.same[m|h.Nodes] = true
				} else {
					next.meet(all&orAll(m), h)
				}
			}
			for m := range now.other {
				next.meet(m, h)
			}
		}
		now = next
	}
	return now
}

// meet adds the intersection of the nodes with a hint's.
func (r results) meet(nodes Mask, h Hint) {
	if nodes &= orAll(h.Nodes); nodes != 0 {
		r.other[nodes] = true
	}
}

func distinct(list []Hint) []Hint {
	seen := map[Hint]bool{}
	var once []Hint
	for _, h := range list {
		if !seen[h] {
			seen[h] = true
			once = append(once, h)
		}
	}
	return once
}

// orAll is the set, or all nodes there can be in place of the empty one.
func orAll(m Mask) Mask {
	if m == 0 {
		return ^Mask(0)
	}
	return m
}

// best is the best of the results; need is how many nodes the resource that needs most of them needs.
func (p Policy) best(r results, need int) Hint {
	best := Hint{Nodes: p.all}
	for m := range r.same {
		nodes := p.all & orAll(m)
		if nodes != 0 && (!best.Preferred || p.fitter(nodes, best.Nodes)) {
			best = Hint{Nodes: nodes, Preferred: true}
		}
	}
	if best.Preferred {
		return best
	}
	found := false
	for m := range r.other {
		if !found || p.better(m, best.Nodes, need) {
			best.Nodes, found = m, true
		}
	}
	return best
}

// better reports whether the nodes a suit resources that need so many nodes better than b, neither being preferred:
// sets of just so many are the best, then the largest of the smaller ones, then the larger ones.
func (p Policy) better(a, b Mask, need int) bool {
	rank := func(m Mask) int {
		if m.Count() > need {
			return -1
		}
		return m.Count()
	}
	if rank(a) != rank(b) {
		return rank(a) > rank(b)
	}
	return p.fitter(a, b)
}

// fitter reports whether the nodes a are to be taken before b: the fewer, then (by prefer-closest-numa-nodes) the ones
// nearer to each other, then the lower ones.
func (p Policy) fitter(a, b Mask) bool {
	if p.closest && p.name != PolicySingleNUMANode && a.Count() == b.Count() {
		if x, y := p.distance(a), p.distance(b); x != y {
			return x < y
		}
	}
	return narrower(a, b)
}

// distance is the sum of the distances between any two of the nodes, each to itself too. It compares sets of one size.
func (p Policy) distance(m Mask) uint64 {
	var sum uint64
	for _, a := range m.Nodes() {
		for _, b := range m.Nodes() {
			sum += p.distances[a][b]
		}
	}
	return sum
}
