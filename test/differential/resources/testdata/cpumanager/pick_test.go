package cpumanager

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/cpuset"

	"kubelot.dev/compared/invent"
	"kubelot.dev/compared/machine"
)

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Both sides pick the same CPUs on machines of all kinds, and give the same hints.
func TestRandomPicks(t *testing.T) {
	logger := logr.Discard()
	// What was compared, to know that the cases aren't all alike.
	met := map[string]int{}
	for seed := range uint64(6000) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := invent.Machine(r, 8)
		topo := invent.Upstream(m)
		group := 1
		if r.IntN(2) == 0 {
			group = m.CPUsPerCore()
		}
		available := invent.Available(r, m, group > 1)
		count := r.IntN(available.Size()+2) / group * group
		if r.IntN(10) == 0 {
			count = r.IntN(available.Size() + 3)
		}
		order := CPUSortingStrategyPacked
		if r.IntN(4) == 0 {
			order = CPUSortingStrategySpread
		}
		caches := r.IntN(2) == 0
		what := fmt.Sprintf("seed %d: %d of %s, group %d, %s, caches %t, on %v", seed, count, available, group, order, caches,
			m.CPUs)

		want, wantErr := upstreamPacked(logger, topo, available, count, order, caches)
		got, err := takeByTopologyNUMAPacked(logger, topo, available, count, order, caches)
		if said(err) != said(wantErr) || !got.Equals(want) {
			t.Fatalf("packed, %s: %s, %v; Kubernetes: %s, %v", what, got, err, want, wantErr)
		}
		want, wantErr = upstreamDistributed(logger, topo, available, count, group, order)
		got, err = takeByTopologyNUMADistributed(logger, topo, available, count, group, order)
		if said(err) != said(wantErr) || !got.Equals(want) {
			t.Fatalf("distributed, %s: %s, %v; Kubernetes: %s, %v", what, got, err, want, wantErr)
		}
		met[fmt.Sprintf("distributed over %d", len(m.PlacesOf(got, machine.NUMANode)))]++

		p := &staticPolicy{topology: topo, cpuGroupSize: m.CPUsPerCore()}
		p.options.AlignBySocket = r.IntN(3) == 0 && topo.NumSockets <= topo.NumNUMANodes
		reusable := cpuset.New()
		for _, id := range m.All().Difference(available).List() {
			if r.IntN(20) == 0 {
				reusable = reusable.Union(cpuset.New(id))
			}
		}
		compareHints(t, what, p, available, reusable, count)
	}
	for i := 1; i <= 8; i++ {
		if met[fmt.Sprintf("distributed over %d", i)] == 0 {
			t.Errorf("no case was distributed over %d nodes: %v", i, met)
		}
	}
	t.Log(met)
}

func compareHints(t *testing.T, what string, p *staticPolicy, available, reusable cpuset.CPUSet, count int) {
	t.Helper()
	want := p.upstreamHints(available, reusable, count)
	got := p.generateCPUTopologyHints(available, reusable, count)
	same := len(got) == len(want)
	for i := 0; same && i < len(got); i++ {
		same = got[i].IsEqual(want[i])
	}
	if !same {
		t.Fatalf("hints, %s, reusable %s: %v; Kubernetes: %v", what, reusable, got, want)
	}
}
