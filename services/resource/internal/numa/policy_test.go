package numa

import (
	"slices"
	"strings"
	"testing"

	"kubelot.dev/services/resource/internal/machine"
)

func TestNew(t *testing.T) {
	far := []machine.Node{{ID: 0}, {ID: 64}}
	for _, c := range []struct {
		name    string
		cfg     Config
		options map[string]string
		want    string // of the error, if there is one
	}{
		{
			name: "none takes anything", cfg: Config{Policy: PolicyNone, Scope: "x", Nodes: far},
			options: map[string]string{"x": ""},
		},
		{name: "eight nodes", cfg: Config{Policy: PolicyRestricted, Scope: scopePod, Nodes: nodes(8)}},
		{
			name: "nine nodes", cfg: Config{Policy: PolicyRestricted, Scope: scopePod, Nodes: nodes(9)},
			want: "unsupported on machines with more than 8 NUMA Nodes: this one has 9",
		},
		{
			name: "nine allowed", cfg: Config{Policy: PolicyRestricted, Scope: scopePod, Nodes: nodes(9)},
			options: map[string]string{optionMaxNodes: "9"},
		},
		{
			name: "fewer allowed than always", cfg: Config{Policy: PolicyRestricted, Scope: scopePod},
			options: map[string]string{optionMaxNodes: "7"},
			want:    `the minimum value of "max-allowable-numa-nodes" should not be less than 8`,
		},
		{
			name: "no number", cfg: Config{Policy: PolicyRestricted, Scope: scopePod},
			options: map[string]string{optionMaxNodes: "many"}, want: "unable to convert policy option to integer",
		},
		{
			name: "no truth", cfg: Config{Policy: PolicyRestricted, Scope: scopePod},
			options: map[string]string{optionPreferClosest: "maybe"}, want: `bad value for option "prefer-closest-numa-nodes"`,
		},
		{
			name: "unknown option", cfg: Config{Policy: PolicyRestricted, Scope: scopePod},
			options: map[string]string{"x": "1"}, want: `unknown Topology Manager Policy option: "x"`,
		},
		{name: "unknown policy", cfg: Config{Policy: "x"}, want: `unknown policy: "x"`},
		{name: "unknown scope", cfg: Config{Policy: PolicyBestEffort, Scope: "x"}, want: `unknown scope: "x"`},
		{
			name: "unknown distances", cfg: Config{Policy: PolicyBestEffort, Scope: scopePod, Nodes: []machine.Node{{ID: 0}}},
			options: map[string]string{optionPreferClosest: "true"}, want: "error getting NUMA distances",
		},
		{
			name: "a node that no mask holds", cfg: Config{Policy: PolicyBestEffort, Scope: scopePod, Nodes: far},
			want: "NUMA node 64",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Options = c.options
			p, err := New(c.cfg)
			if c.want == "" && (err != nil || p.Name() != c.cfg.Policy || p.PerPod() != (c.cfg.Scope == scopePod)) {
				t.Errorf("%+v, %v", p, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestMasks(t *testing.T) {
	var got []string
	for m := range Masks([]int{0, 2, 5}) {
		got = append(got, m.String())
	}
	if want := []string{"0", "2", "5", "0,2", "0,5", "2,5", "0,2,5"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for m := range Masks([]int{0, 1, 2}) {
		if m.Count() == 2 {
			got = append(got[:0], m.String())
			break
		}
	}
	if !slices.Equal(got, []string{"0-1"}) {
		t.Errorf("%v after a break", got)
	}
	if m := NewMask(-1, 3, 63, 64); m.String() != "3,63" || m.Count() != 2 {
		t.Errorf("%s", m)
	}
}

// Each subset is its own: changing one, or going on, changes no other.
func TestSubsets(t *testing.T) {
	var all [][]int
	for s := range Subsets([]int{7, 3, 5, 1, 9}, 4) {
		all = append(all, s)
	}
	want := [][]int{{7, 3, 5, 1}, {7, 3, 5, 9}, {7, 3, 1, 9}, {7, 5, 1, 9}, {3, 5, 1, 9}}
	if !slices.EqualFunc(all, want, slices.Equal[[]int]) {
		t.Errorf("%v, want %v", all, want)
	}
	for range Subsets([]int{1, 2}, 3) {
		t.Error("three of two")
	}
	for range Subsets(nil, 0) {
		t.Error("none of none")
	}
}
