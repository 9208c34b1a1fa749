package topologymanager

import (
	"fmt"
	"strconv"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"

	"kubelot.dev/compared/machine"
	"kubelot.dev/compared/numa"
)

func (p *bestEffortPolicy) Merge(_ klog.Logger, hints []map[string][]TopologyHint) (TopologyHint, bool) {
	return merge(PolicyBestEffort, p.numaInfo, p.opts, hints)
}

func (p *restrictedPolicy) Merge(_ klog.Logger, hints []map[string][]TopologyHint) (TopologyHint, bool) {
	return merge(PolicyRestricted, p.numaInfo, p.opts, hints)
}

func (p *singleNumaNodePolicy) Merge(_ klog.Logger, hints []map[string][]TopologyHint) (TopologyHint, bool) {
	return merge(PolicySingleNumaNode, p.numaInfo, p.opts, hints)
}

func merge(policy string, info *NUMAInfo, opts PolicyOptions,
	providers []map[string][]TopologyHint,
) (TopologyHint, bool) {
	p, err := numa.New(config(policy, info, opts))
	if err != nil {
		panic(err)
	}
	var hints []numa.ProviderHints
	for _, provider := range providers {
		hints = append(hints, product(provider))
	}
	affinity, admit := numa.Merge(p, hints)
	merged := TopologyHint{Preferred: affinity.Preferred}
	if affinity.Nodes != 0 {
		if merged.NUMANodeAffinity, err = bitmask.NewBitMask(affinity.Nodes.Nodes()...); err != nil {
			panic(err)
		}
	}
	return merged, admit
}

func config(policy string, info *NUMAInfo, opts PolicyOptions) numa.Config {
	cfg := numa.Config{
		Policy: policy, Scope: "container",
		Options: map[string]string{"prefer-closest-numa-nodes": strconv.FormatBool(opts.PreferClosestNUMA)},
	}
	for _, id := range info.Nodes {
		n := machine.Node{ID: id}
		for _, other := range info.Nodes {
			if list := info.NUMADistances[id]; other < len(list) {
				if n.Distances == nil {
					n.Distances = map[int]uint64{}
				}
				n.Distances[other] = list[other]
			}
		}
		cfg.Nodes = append(cfg.Nodes, n)
	}
	return cfg
}

func product(provider map[string][]TopologyHint) numa.ProviderHints {
	hints := numa.ProviderHints{}
	for resource, list := range provider {
		hints[resource] = nil
		if list == nil {
			continue
		}
		converted := []numa.Hint{}
		for _, h := range list {
			hint := numa.Hint{Preferred: h.Preferred}
			if h.NUMANodeAffinity != nil {
				if h.NUMANodeAffinity.IsEmpty() {
					panic(fmt.Sprintf("%s: a hint of no nodes", resource))
				}
				hint.Nodes = numa.NewMask(h.NUMANodeAffinity.GetBits()...)
			}
			converted = append(converted, hint)
		}
		hints[resource] = converted
	}
	return hints
}
