package pick

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"

	"kubelot.dev/services/resource/internal/machine"
)

// Request asks for CPUs.
type Request struct {
	Machine machine.Topology
	// Available are the CPUs to choose from, Count is how many are asked for.
	Available cpuset.CPUSet
	Count     int
	// Spread takes each thread from another core of the socket, as far as it goes (distribute-cpus-across-cores).
	Spread bool
	// AlignCaches takes whole uncore caches, and what is left from a single one, where that can be had
	// (prefer-align-cpus-by-uncorecache).
	AlignCaches bool
}

// check refuses a request for more CPUs than there are.
func (r Request) check() error {
	usable := 0
	for _, id := range r.Available.UnsortedList() {
		if _, ok := r.Machine.CPUs[id]; ok {
			usable++
		}
	}
	if r.Count > usable {
		return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d",
			r.Count, r.Available.Size())
	}
	return nil
}

// picker takes CPUs until nothing more is needed.
type picker struct {
	machine machine.Topology
	free    cpuset.CPUSet
	taken   cpuset.CPUSet
	need    int
	// levels are what CPUs are looked for in, the widest first.
	levels []machine.Level
}

func newPicker(r Request) *picker {
	p := &picker{
		machine: r.Machine, free: r.Available.Intersection(r.Machine.All()), taken: cpuset.New(), need: r.Count,
		levels: []machine.Level{machine.Socket, machine.NUMANode, machine.Core},
	}
	if len(r.Machine.Places(machine.Socket)) >= len(r.Machine.Places(machine.NUMANode)) {
		p.levels[0], p.levels[1] = p.levels[1], p.levels[0]
	}
	return p
}

func (p *picker) take(cpus cpuset.CPUSet) {
	p.free = p.free.Difference(cpus)
	p.taken = p.taken.Union(cpus)
	p.need -= cpus.Size()
}

// to are the levels down to one of them.
func (p *picker) to(l machine.Level) []machine.Level {
	return slices.Clone(p.levels[:slices.Index(p.levels, l)+1])
}

// order are the places of the last of the levels that have free CPUs: those in the place of the first level with the
// fewest free CPUs come first, and so on down the levels. So places in use are filled before others are begun.
func (p *picker) order(levels []machine.Level) []int {
	free := make([]map[int]int, len(levels))
	for i, l := range levels {
		free[i] = p.machine.Tally(p.free, l)
	}
	var places []int
	seen := map[int]bool{}
	for _, place := range p.arrange(p.free, levels, free) {
		// A cache may be in several NUMA nodes.
		if !seen[place] {
			seen[place] = true
			places = append(places, place)
		}
	}
	return places
}

func (p *picker) arrange(within cpuset.CPUSet, levels []machine.Level, free []map[int]int) []int {
	here := map[int][]int{}
	for _, id := range within.UnsortedList() {
		place := p.machine.CPUs[id].At(levels[0])
		here[place] = append(here[place], id)
	}
	places := make([]int, 0, len(here))
	for place := range here {
		places = append(places, place)
	}
	slices.SortFunc(places, func(a, b int) int {
		return cmp.Or(cmp.Compare(free[0][a], free[0][b]), cmp.Compare(a, b))
	})
	if len(levels) == 1 {
		return places
	}
	var inner []int
	for _, place := range places {
		inner = append(inner, p.arrange(cpuset.New(here[place]...), levels[1:], free[1:])...)
	}
	return inner
}

// in are the free CPUs in a place.
func (p *picker) in(l machine.Level, place int) cpuset.CPUSet {
	return p.free.Intersection(p.machine.In(l, place))
}

// takeWhole takes places of the last level of which all CPUs are free and needed.
func (p *picker) takeWhole(levels []machine.Level) {
	l := levels[len(levels)-1]
	size, free := p.machine.Tally(p.machine.All(), l), p.machine.Tally(p.free, l)
	places := p.order(levels)
	whole := func() cpuset.CPUSet {
		cpus := cpuset.New()
		for _, place := range places {
			if free[place] == size[place] && cpus.Size()+size[place] <= p.need {
				cpus = cpus.Union(p.in(l, place))
			}
		}
		return cpus
	}
	cpus := whole()
	if cpus.Size() < p.need {
		// Where cores have unequal numbers of threads, small ones may use up what the large ones need.
		slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(size[b], size[a]) })
		if more := whole(); more.Size() > cpus.Size() {
			cpus = more
		}
	}
	p.take(cpus)
}

// takeSingle takes single threads: those of cores that are in use already come first, or with spread the lowest ones of
// a socket, which are of different cores by the kernel's numbering.
func (p *picker) takeSingle(spread bool) {
	l := machine.Core
	if spread {
		l = machine.Socket
	}
	for _, place := range p.order(p.to(l)) {
		cpus := p.in(l, place).List()
		p.take(cpuset.New(cpus[:min(p.need, len(cpus))]...))
		if p.need == 0 {
			return
		}
	}
}
