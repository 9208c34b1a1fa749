package numa

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"kubelot.dev/services/resource/internal/machine"
)

// nodes have the distances of a machine with two sockets of half of them each.
func nodes(n int) []machine.Node {
	list := make([]machine.Node, n)
	for i := range list {
		list[i] = machine.Node{ID: i, Distances: map[int]uint64{}}
		for j := range n {
			switch {
			case i == j:
				list[i].Distances[j] = 10
			case i*2/n == j*2/n:
				list[i].Distances[j] = 11
			default:
				list[i].Distances[j] = 20
			}
		}
	}
	return list
}

func policy(t *testing.T, name string, n int, options ...string) Policy {
	t.Helper()
	cfg := Config{Policy: name, Scope: scopeContainer, Nodes: nodes(n), Options: map[string]string{}}
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		cfg.Options[name] = value
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func yes(nodes ...int) Hint { return Hint{Nodes: NewMask(nodes...), Preferred: true} }
func no(nodes ...int) Hint  { return Hint{Nodes: NewMask(nodes...)} }

func TestMerge(t *testing.T) {
	cpu := func(h ...Hint) ProviderHints { return ProviderHints{"cpu": append([]Hint{}, h...)} }
	device := func(h ...Hint) ProviderHints { return ProviderHints{"x.example/dev": h} }
	for _, c := range []struct {
		name, policy string
		options      []string
		hints        []ProviderHints
		want         Hint
		refused      bool
	}{
		{name: "none asks nobody", policy: PolicyNone, hints: []ProviderHints{cpu()}},
		{name: "no providers", policy: PolicyBestEffort, want: yes(0, 1, 2, 3)},
		{name: "no providers", policy: PolicySingleNUMANode, want: yes()},
		{name: "no preference", policy: PolicyRestricted, hints: []ProviderHints{nil, {"cpu": nil}}, want: yes(0, 1, 2, 3)},
		{name: "impossible", policy: PolicyBestEffort, hints: []ProviderHints{cpu()}, want: no(0, 1, 2, 3)},
		{name: "impossible", policy: PolicyRestricted, hints: []ProviderHints{cpu()}, want: no(0, 1, 2, 3), refused: true},
		{name: "impossible", policy: PolicySingleNUMANode, hints: []ProviderHints{cpu()}, want: no(), refused: true},
		{
			name: "the same node", policy: PolicySingleNUMANode,
			hints: []ProviderHints{cpu(yes(0), yes(1), no(0, 1)), device(yes(1))}, want: yes(1),
		},
		{
			name: "the lower of two", policy: PolicyRestricted,
			hints: []ProviderHints{cpu(yes(2), yes(1)), device(yes(1), yes(2))}, want: yes(1),
		},
		{
			name: "nothing in common", policy: PolicyBestEffort,
			hints: []ProviderHints{cpu(yes(0)), device(yes(1))}, want: no(0, 1, 2, 3),
		},
		{
			name: "the device decides", policy: PolicyBestEffort,
			hints: []ProviderHints{cpu(no(0, 1), no(0, 1, 2)), device(yes(1))}, want: no(1),
		},
		{
			name: "the device decides", policy: PolicyRestricted,
			hints: []ProviderHints{cpu(no(0, 1)), device(yes(1))}, want: no(1), refused: true,
		},
		{
			name: "as wide as the widest need", policy: PolicyBestEffort,
			hints: []ProviderHints{cpu(no(0, 1, 2), no(1, 2, 3)), device(no(0), no(0, 1), no(0, 1, 2))},
			want:  no(0, 1, 2),
		},
		{
			name: "two nodes are no single one", policy: PolicySingleNUMANode,
			hints: []ProviderHints{cpu(yes(0, 1))}, want: no(), refused: true,
		},
		{
			name: "not preferred", policy: PolicySingleNUMANode,
			hints: []ProviderHints{cpu(no(0))}, want: no(), refused: true,
		},
		{
			name: "the lower pair", policy: PolicyRestricted,
			hints: []ProviderHints{cpu(yes(1, 2), yes(2, 3))}, want: yes(1, 2),
		},
		{
			name: "the closer pair", policy: PolicyRestricted, options: []string{optionPreferClosest + "=true"},
			hints: []ProviderHints{cpu(yes(1, 2), yes(2, 3))}, want: yes(2, 3),
		},
		{
			name: "the lower of two pairs that are as close", policy: PolicyRestricted,
			options: []string{optionPreferClosest + "=true"},
			hints:   []ProviderHints{cpu(yes(2, 3), yes(0, 1))}, want: yes(0, 1),
		},
	} {
		t.Run(c.policy+" "+c.name, func(t *testing.T) {
			got, admit := Merge(policy(t, c.policy, 4, c.options...), c.hints)
			if got != c.want || admit == c.refused {
				t.Errorf("%s preferred %t, admitted %t; want %s preferred %t, admitted %t", got.Nodes, got.Preferred, admit,
					c.want.Nodes, c.want.Preferred, !c.refused)
			}
		})
	}
}

// A machine of one node has no choice.
func TestMergeOneNode(t *testing.T) {
	got, admit := Merge(policy(t, PolicySingleNUMANode, 1), []ProviderHints{{"cpu": {yes(0)}}})
	if got != yes() || !admit {
		t.Errorf("%+v, %t", got, admit)
	}
}

// try is Merge for the policies with several nodes, by trying all picks.
func try(p Policy, lists [][]Hint) Hint {
	best, found, need := Hint{Nodes: p.all}, false, widest(lists)
	var pick func(i int, picks []Hint)
	pick = func(i int, picks []Hint) {
		if i < len(lists) {
			for _, h := range lists[i] {
				pick(i+1, append(picks[:i:i], h))
			}
			return
		}
		now, first := Hint{Nodes: p.all, Preferred: true}, Mask(0)
		for _, h := range picks {
			now.Preferred = now.Preferred && h.Preferred
			if h.Nodes == 0 {
				continue
			}
			now.Preferred = now.Preferred && (first == 0 || h.Nodes == first)
			if first == 0 {
				first = h.Nodes
			}
			now.Nodes &= h.Nodes
		}
		switch {
		case now.Nodes == 0:
			return
		case found && now.Preferred != best.Preferred:
			if best.Preferred {
				return
			}
		case found && best.Preferred && !p.fitter(now.Nodes, best.Nodes):
			return
		case found && !best.Preferred && !p.better(now.Nodes, best.Nodes, need):
			return
		}
		best, found = now, true
	}
	pick(0, nil)
	return best
}

// Merge finds what trying all picks finds.
func TestMergeTriesAll(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 4))
		n := 1 + r.IntN(5)
		p := policy(t, PolicyBestEffort, n, fmt.Sprintf("%s=%t", optionPreferClosest, r.IntN(2) == 0))
		var hints []ProviderHints
		var all [][]Hint
		for range r.IntN(4) {
			var list []Hint
			for range 1 + r.IntN(5) {
				list = append(list, Hint{Nodes: Mask(r.IntN(1 << n)), Preferred: r.IntN(2) == 0})
			}
			hints = append(hints, ProviderHints{"x": list})
			all = append(all, list)
		}
		if got, _ := Merge(p, hints); got != try(p, all) {
			t.Fatalf("seed %d: %v of %v, want %v", seed, got, all, try(p, all))
		}
	}
}

// Hints of eight nodes and many resources take no time that anyone notices: all picks would be 255 to the power of 6.
func TestMergeMany(t *testing.T) {
	p := policy(t, PolicyBestEffort, 8)
	var list []Hint
	for m := range Masks([]int{0, 1, 2, 3, 4, 5, 6, 7}) {
		list = append(list, Hint{Nodes: m, Preferred: m.Count() == 3})
	}
	hints := ProviderHints{}
	for i := range 6 {
		hints[fmt.Sprint(i)] = list
	}
	if got, admit := Merge(p, []ProviderHints{hints}); got != yes(0, 1, 2) || !admit {
		t.Errorf("%+v, %t", got, admit)
	}
}
