package pick

import (
	"errors"
	"maps"
	"math"

	"k8s.io/utils/cpuset"

	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/numa"
)

// Distributed picks CPUs in groups of the given size, the same number from each of the fewest NUMA nodes that have them
// (KEP-2902). Groups that are left over go to as many of these nodes as can be. Of several choices it takes the one
// after which the free CPUs are most even on all nodes. Where no nodes can share the request so, and where it isn't a
// number of whole groups, it picks as Packed does.
func Distributed(r Request, group int) (cpuset.CPUSet, error) {
	// Caches aren't looked at: the two options exclude each other.
	r.AlignCaches = false
	if r.Count < 1 || group < 1 || r.Count%group != 0 {
		return Packed(r)
	}
	if err := r.check(); err != nil {
		return cpuset.New(), err
	}
	p := newPicker(r)
	d := division{
		nodes: p.order(p.to(machine.NUMANode)), free: p.machine.Tally(p.free, machine.NUMANode),
		count: r.Count, group: group,
	}
	for n := d.least(r.Machine); n <= min(r.Count/group, len(d.nodes)); n++ {
		if s, ok := d.best(n); ok {
			return p.give(r, s, group)
		}
	}
	return Packed(r)
}

// give takes a split's shares from its nodes.
func (p *picker) give(r Request, s split, group int) (cpuset.CPUSet, error) {
	from := func(node, count int) error {
		r.Available, r.Count = p.in(machine.NUMANode, node), count
		cpus, err := Packed(r)
		p.take(cpus)
		return err
	}
	for _, node := range s.nodes {
		if err := from(node, s.share); err != nil {
			return cpuset.New(), err
		}
	}
	for p.need > 0 {
		before := p.need
		for _, node := range s.extra {
			if p.need > 0 && p.in(machine.NUMANode, node).Size() >= group {
				if err := from(node, group); err != nil {
					return cpuset.New(), err
				}
			}
		}
		if p.need == before {
			return cpuset.New(), errors.New("failed to allocate cpus")
		}
	}
	return p.taken, nil
}

// division is the question how NUMA nodes share a request.
type division struct {
	// nodes are those with free CPUs, in the order they are tried in; free is how many each has.
	nodes []int
	free  map[int]int
	// count CPUs are asked for, in groups.
	count, group int
}

// split is an answer: each of the nodes gives its share, and what is left over comes group by group from the extra
// ones.
type split struct {
	nodes, extra []int
	share        int
	// spread is how uneven the free CPUs on all nodes are afterwards.
	spread float64
}

// least is how many nodes the request needs on an empty machine.
func (d division) least(m machine.Topology) int {
	up := func(a, b int) int { return (a + b - 1) / b }
	perNode := up(up(len(m.CPUs), d.group), len(m.Places(machine.NUMANode)))
	return up(d.count/d.group, perNode)
}

// best is the most even split among so many nodes. Of equally good ones it is the first.
func (d division) best(n int) (split, bool) {
	best := split{spread: math.MaxFloat64}
	for nodes := range numa.Subsets(d.nodes, n) {
		if s, ok := d.among(nodes); ok && s.spread < best.spread {
			best = s
		}
		if best.spread == 0 {
			break
		}
	}
	return best, best.nodes != nil
}

// among is the most even split among the nodes, if they can share the request.
func (d division) among(nodes []int) (split, bool) {
	s := split{nodes: nodes, share: d.count / len(nodes) / d.group * d.group, spread: math.MaxFloat64}
	left, groups := maps.Clone(d.free), 0
	for _, n := range nodes {
		groups += d.free[n] / d.group
		if left[n] -= s.share; left[n] < 0 {
			return s, false
		}
	}
	if groups*d.group < d.count {
		return s, false
	}
	rest := d.count - s.share*len(nodes)
	if rest == 0 {
		s.spread = d.deviation(left)
		return s, true
	}
	var able []int
	for _, n := range nodes {
		if left[n] >= d.group {
			able = append(able, n)
		}
	}
	for n := len(able); n >= 1; n-- {
		for extra := range numa.Subsets(able, n) {
			if after, ok := d.hand(left, extra, rest); ok && d.deviation(after) < s.spread {
				s.extra, s.spread = extra, d.deviation(after)
			}
		}
	}
	return s, s.extra != nil
}

// hand is what is left after the rest was taken from the nodes in turn, if they have it.
func (d division) hand(left map[int]int, nodes []int, rest int) (map[int]int, bool) {
	groups := 0
	for _, n := range nodes {
		groups += left[n] / d.group
	}
	if groups*d.group < rest {
		return nil, false
	}
	left = maps.Clone(left)
	for rest > 0 {
		for _, n := range nodes {
			if rest > 0 && left[n] >= d.group {
				left[n] -= d.group
				rest -= d.group
			}
		}
	}
	return left, true
}

// deviation is the standard deviation of the free CPUs on all nodes. It has three decimals, as the mean, because it
// decides between splits.
func (d division) deviation(left map[int]int) float64 {
	round := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	sum := 0.0
	for _, n := range d.nodes {
		sum += float64(left[n])
	}
	mean, squares := round(sum/float64(len(d.nodes))), 0.0
	for _, n := range d.nodes {
		squares += (float64(left[n]) - mean) * (float64(left[n]) - mean)
	}
	return round(math.Sqrt(squares / float64(len(d.nodes))))
}
