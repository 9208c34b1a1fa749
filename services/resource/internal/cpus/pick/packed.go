package pick

import (
	"errors"

	"k8s.io/utils/cpuset"

	"kubelot.dev/services/resource/internal/machine"
)

// Packed picks CPUs that are as near to each other as can be had: whole NUMA nodes and sockets, the wider of the two
// first, then uncore caches if they count, whole cores, and single threads.
func Packed(r Request) (cpuset.CPUSet, error) {
	if r.Count < 1 {
		return cpuset.New(), nil
	}
	if err := r.check(); err != nil {
		return cpuset.New(), err
	}
	p := newPicker(r)
	steps := []func(){
		func() { p.takeWhole(p.levels[:1]) },
		func() { p.takeWhole(p.levels[:2]) },
	}
	if r.AlignCaches {
		steps = append(steps, p.takeCaches)
	}
	if !r.Spread {
		steps = append(steps, func() { p.takeWhole(p.levels) })
	}
	steps = append(steps, func() { p.takeSingle(r.Spread) })
	for _, step := range steps {
		if step(); p.need == 0 {
			return p.taken, nil
		}
	}
	return cpuset.New(), errors.New("failed to allocate cpus")
}

// takeCaches takes whole uncore caches, and then the rest from the first cache that has just what is needed.
func (p *picker) takeCaches() {
	levels := append(p.to(machine.NUMANode), machine.UncoreCache)
	caches := p.order(levels)
	p.takeWhole(levels)
	for _, cache := range caches {
		if p.need == 0 {
			return
		}
		if cpus := p.part(cache); cpus.Size() == p.need {
			p.take(cpus)
		}
	}
}

// part are the free CPUs of as many cores of a cache as are needed, those with the lowest IDs. Of an odd number, one
// thread is left to others.
func (p *picker) part(cache int) cpuset.CPUSet {
	perCore := max(1, p.machine.CPUsPerCore())
	cores := p.machine.PlacesOf(p.in(machine.UncoreCache, cache), machine.Core)
	cores = cores[:min(len(cores), (p.need+perCore-1)/perCore)]
	cpus := p.free.Intersection(p.machine.In(machine.Core, cores...)).List()
	if p.need%2 != 0 && perCore > 1 && len(cpus) > p.need {
		cpus = cpus[:len(cpus)-1]
	}
	return cpuset.New(cpus...)
}
