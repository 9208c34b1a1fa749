package cpus

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/numa"
)

func TestNew(t *testing.T) {
	for _, c := range []struct {
		name     string
		policy   string
		options  string // name=value, separated by spaces
		gates    bool   // both on
		topology string
		milli    int64
		reserved string
		machine  machine.Topology
		want     string // the reserved CPUs
		err      string
	}{
		{name: "none", policy: PolicyNone},
		{
			name: "none with options", policy: PolicyNone, options: "full-pcpus-only=true",
			err: "the policy none has no options",
		},
		{name: "unknown policy", policy: "x", err: `unknown policy: "x"`},
		{name: "half a CPU is one", milli: 500, want: "0"},
		{name: "two CPUs are a core", milli: 1100, want: "0,4"},
		{name: "by name", reserved: "1-2", milli: 1, want: "1-2"},
		{name: "by name, of others", reserved: "1,8-9", err: "reservedSystemCPUs has the CPUs 8-9"},
		{
			name: "none reserved",
			err:  "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
		},
		{name: "more than there are", milli: 9000, err: "unable to reserve the required amount of CPUs"},
		{name: "unknown option", options: "x=true", err: `unknown CPU Manager Policy option: "x"`},
		{name: "no truth", options: "full-pcpus-only=1.5", err: `bad value for option "full-pcpus-only"`},
		{
			name: "off is off", options: "full-pcpus-only=false distribute-cpus-across-cores=true", gates: true, milli: 1000,
			want: "0",
		},
		{name: "alpha", options: "align-by-socket=true", err: "CPU Manager Policy Alpha-level Options not enabled"},
		{name: "beta", options: "distribute-cpus-across-numa=true", err: "CPU Manager Policy Beta-level Options not enabled"},
		{
			name: "cores and cores", options: "full-pcpus-only=true distribute-cpus-across-cores=true", gates: true,
			err: "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
		},
		{
			name: "NUMA and cores", options: "distribute-cpus-across-numa=true distribute-cpus-across-cores=true", gates: true,
			err: "can not be used at the same time",
		},
		{
			name: "caches and cores", options: "prefer-align-cpus-by-uncorecache=true distribute-cpus-across-cores=true",
			gates: true, err: "can not be used at the same time",
		},
		{
			name: "caches and NUMA", options: "prefer-align-cpus-by-uncorecache=true distribute-cpus-across-numa=true",
			gates: true, err: "can not be used at the same time",
		},
		{
			name: "sockets of one node", options: "align-by-socket=true", gates: true, topology: numa.PolicySingleNUMANode,
			err: "single-numa-node is incompatible",
		},
		{
			name: "more sockets than nodes", options: "align-by-socket=true", gates: true, milli: 1,
			machine: machine.Topology{CPUs: map[int]machine.CPU{0: {}, 1: {Socket: 1, Core: 1}}},
			err:     "more sockets (2) than NUMA nodes (1)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{
				Machine: c.machine, Policy: c.policy, Options: map[string]string{}, AlphaOptions: c.gates, BetaOptions: c.gates,
				TopologyPolicy: c.topology, Reserved: set(t, c.reserved), ReservedMilli: c.milli,
			}
			for _, o := range strings.Fields(c.options) {
				name, value, _ := strings.Cut(o, "=")
				cfg.Options[name] = value
			}
			if cfg.Policy == "" {
				cfg.Policy = PolicyStatic
			}
			if cfg.Machine.CPUs == nil {
				cfg.Machine = grid(1, 1, 4, 2)
			}
			s, err := New(cfg)
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want an error with %q", err, c.err)
				}
			case err != nil:
				t.Error(err)
			case s.Reserved().String() != c.want:
				t.Errorf("%s are reserved, want %s", s.Reserved(), c.want)
			}
		})
	}
}

func TestAdopt(t *testing.T) {
	saved := Entries{
		"a": {"init": set(t, "1-3"), "app": set(t, "1-2")},
		"b": {"app0": set(t, "2"), "app1": set(t, "4")},
		"c": {"app": set(t, "0,5")},
		"d": {"app": set(t, "6-9")},
		"e": {"app": set(t, "")},
	}
	why := func(list []Released) []string {
		var lines []string
		for _, r := range list {
			lines = append(lines, string(r.Pod)+"/"+r.Container+" "+r.CPUs.String()+": "+r.Why)
		}
		return lines
	}
	s := static(t, grid(1, 1, 4, 2), "0", optionFullCores)
	want := []string{
		"b/app0 2: 2 is the pod a's", "c/app 0,5: 0 are reserved now",
		"d/app 6-9: 8-9 aren't there any more, or are offline",
		"e/app : there are none",
	}
	if got := why(s.Adopt(PolicyStatic, saved)); !slices.Equal(got, want) {
		t.Errorf("released %q, want %q", got, want)
	}
	ends := func(_ types.UID, name string) bool { return name == "init" }
	if err := s.broken(ends); err != nil {
		t.Error(err)
	}
	if got, ok := s.Exclusive("a", "init"); !ok || got.String() != "1-3" {
		t.Errorf("the init container has %s", got)
	}
	if got := s.Shared().String(); got != "0,5-7" {
		t.Errorf("%s are shared", got)
	}
	if got := s.PerNode(); got[0] != 4 || len(got) != 1 {
		t.Errorf("per node %v", got)
	}

	// What was left out is allocated again, and what was adopted stays: half a core by itself, as well.
	if got, err := run(s, pod("b", "app0=2", "app1=1")); got != "" || err == nil {
		t.Errorf("%s, %v, want no whole core", got, err)
	}
	if got, err := run(s, pod("a", "init=3", "app=2")); got != "init=1-3 app=1-2" || err != nil {
		t.Errorf("%s, %v", got, err)
	}

	for name, s := range map[string]*State{PolicyStatic: s, PolicyNone: nil} {
		policy := PolicyNone
		if s == nil {
			var err error
			if s, err = New(Config{Policy: PolicyNone}); err != nil {
				t.Fatal(err)
			}
			policy = PolicyStatic
		}
		if got := s.Adopt(policy, saved); len(got) != 7 || len(s.Entries()) > 0 {
			t.Errorf("under %s: released %q, kept %v", name, why(got), s.Entries())
		}
	}
}

// Saving and adopting a state changes nothing.
func TestAdoptOwn(t *testing.T) {
	for _, options := range [][]string{nil, {optionStrictReservation}} {
		s := static(t, grid(2, 2, 4, 2), "0-1", options...)
		for _, p := range []string{"a", "b"} {
			if _, err := run(s, pod(p, "init=3", "app=5")); err != nil {
				t.Fatal(err)
			}
		}
		next := static(t, grid(2, 2, 4, 2), "0-1", options...)
		if released := next.Adopt(PolicyStatic, s.Entries()); released != nil {
			t.Errorf("%v released", released)
		}
		if !next.Shared().Equals(s.Shared()) || len(next.Entries()) != 2 {
			t.Errorf("%s shared, %v; before %s, %v", next.Shared(), next.Entries(), s.Shared(), s.Entries())
		}
		// A copy is a copy.
		clear(s.Entries()["a"])
		if _, ok := s.Exclusive("a", "app"); !ok {
			t.Error("a change of the copy changed the state")
		}
	}
}

func TestOneCache(t *testing.T) {
	s := static(t, grid(2, 1, 2, 1), "0")
	for list, want := range map[string]bool{"": true, "1": true, "0-1": true, "1-2": false} {
		if got := s.OneCache(set(t, list)); got != want {
			t.Errorf("%q: %t", list, got)
		}
	}
}
