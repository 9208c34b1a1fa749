package cpumanager

import (
	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/utils/cpuset"

	"kubelot.dev/compared/cpus"
	"kubelot.dev/compared/cpus/pick"
	"kubelot.dev/compared/invent"
	"kubelot.dev/compared/numa"
)

func takeByTopologyNUMAPacked(_ logr.Logger, topo *topology.CPUTopology, available cpuset.CPUSet, count int,
	order CPUSortingStrategy, alignCaches bool,
) (cpuset.CPUSet, error) {
	return pick.Packed(pick.Request{
		Machine: invent.Product(topo), Available: available, Count: count,
		Spread: order == CPUSortingStrategySpread, AlignCaches: alignCaches,
	})
}

func takeByTopologyNUMADistributed(_ logr.Logger, topo *topology.CPUTopology, available cpuset.CPUSet, count, group int,
	order CPUSortingStrategy,
) (cpuset.CPUSet, error) {
	return pick.Distributed(pick.Request{
		Machine: invent.Product(topo), Available: available, Count: count,
		Spread: order == CPUSortingStrategySpread,
	}, group)
}

func (p *staticPolicy) part() *cpus.State {
	o := p.options
	return cpus.Part(invent.Product(p.topology), o.AlignBySocket, o.PreferAlignByUncoreCacheOption,
		o.DistributeCPUsAcrossNUMA, o.DistributeCPUsAcrossCores, o.FullPhysicalCPUsOnly)
}

func (p *staticPolicy) generateCPUTopologyHints(available, reusable cpuset.CPUSet,
	count int,
) []topologymanager.TopologyHint {
	hints := []topologymanager.TopologyHint{}
	for _, h := range p.part().HintsFor(available.Union(reusable), reusable, count)[string(v1.ResourceCPU)] {
		mask, err := bitmask.NewBitMask(h.Nodes.Nodes()...)
		if err != nil {
			panic(err)
		}
		hints = append(hints, topologymanager.TopologyHint{NUMANodeAffinity: mask, Preferred: h.Preferred})
	}
	return hints
}

func (p *staticPolicy) allocateCPUs(_ logr.Logger, s state.State, count int, affinity bitmask.BitMask,
	reusable cpuset.CPUSet,
) (topology.Allocation, error) {
	var nodes numa.Mask
	if affinity != nil {
		nodes = numa.NewMask(affinity.GetBits()...)
	}
	got, err := p.part().Choose(p.GetAvailableCPUs(s).Union(reusable), count, nodes)
	if err != nil {
		return topology.EmptyAllocation(), err
	}
	s.SetDefaultCPUSet(s.GetDefaultCPUSet().Difference(got))
	return topology.Allocation{CPUs: got, Aligned: p.topology.CheckAlignment(got)}, nil
}
