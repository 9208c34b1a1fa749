package topologymanager

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
)

type upstreamMerger interface {
	Policy
	upstreamMerge(logger klog.Logger, hints []map[string][]TopologyHint) (TopologyHint, bool)
}

// Both sides come to the same for hints of all kinds, under each policy.
func TestRandomMerge(t *testing.T) {
	met := map[string]int{}
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 2))
		info := inventNodes(r)
		opts := PolicyOptions{PreferClosestNUMA: r.IntN(2) == 0}
		providers := inventHints(r, info)
		for _, p := range []upstreamMerger{
			&bestEffortPolicy{numaInfo: info, opts: opts},
			&restrictedPolicy{bestEffortPolicy{numaInfo: info, opts: opts}},
			&singleNumaNodePolicy{numaInfo: info, opts: opts},
		} {
			want, wantAdmit := p.upstreamMerge(klog.Background().V(100), providers)
			got, admit := p.Merge(klog.Background(), providers)
			if !got.IsEqual(want) || admit != wantAdmit {
				t.Fatalf("seed %d: %s %+v of %v on %+v: %v, %t; Kubernetes: %v, %t", seed, p.Name(), opts, providers, info, got,
					admit, want, wantAdmit)
			}
			met[fmt.Sprintf("%s %t", p.Name(), admit)]++
			if got.NUMANodeAffinity != nil && !got.Preferred {
				met[fmt.Sprintf("not preferred, %d nodes", got.NUMANodeAffinity.Count())]++
			}
		}
	}
	for _, what := range []string{
		"best-effort true", "restricted true", "restricted false", "single-numa-node true", "single-numa-node false",
		"not preferred, 1 nodes", "not preferred, 2 nodes", "not preferred, 3 nodes",
	} {
		if met[what] == 0 {
			t.Errorf("no case was %s: %v", what, met)
		}
	}
	t.Log(met)
}

func inventNodes(r *rand.Rand) *NUMAInfo {
	n := 1 + r.IntN(8)
	info := &NUMAInfo{NUMADistances: NUMADistances{}}
	for i := range n {
		info.Nodes = append(info.Nodes, i)
		for j := range n {
			d := uint64(10)
			if i != j {
				d = 11 + uint64(r.IntN(4))
			}
			info.NUMADistances[i] = append(info.NUMADistances[i], d)
		}
	}
	return info
}

// inventHints has few enough hints for Kubernetes to try all combinations of them.
func inventHints(r *rand.Rand, info *NUMAInfo) []map[string][]TopologyHint {
	var providers []map[string][]TopologyHint
	for range r.IntN(4) {
		var hints map[string][]TopologyHint
		if r.IntN(8) > 0 {
			hints = map[string][]TopologyHint{}
			for i := range 1 + r.IntN(2) {
				hints[fmt.Sprint("resource", i)] = inventList(r, info)
			}
		}
		providers = append(providers, hints)
	}
	return providers
}

func inventList(r *rand.Rand, info *NUMAInfo) []TopologyHint {
	if r.IntN(15) == 0 {
		return nil
	}
	list := []TopologyHint{}
	if r.IntN(15) == 0 {
		return list
	}
	for range 1 + r.IntN(6) {
		h := TopologyHint{Preferred: r.IntN(2) == 0}
		if r.IntN(12) > 0 {
			mask := bitmask.NewEmptyBitMask()
			wide := 1 + r.IntN(len(info.Nodes))
			for _, n := range r.Perm(len(info.Nodes))[:wide] {
				_ = mask.Add(n)
			}
			h.NUMANodeAffinity = mask
		}
		list = append(list, h)
	}
	return list
}
