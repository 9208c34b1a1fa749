package numa

import (
	"strings"
	"testing"

	"kubelot.dev/services/resource/internal/fault"
	"kubelot.dev/services/resource/internal/machine"
)

// What the kubelet doesn't start with is healed, and what was done is said.
func TestHeal(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want string // the policy
		pod  bool
		text string
	}{
		"nothing is wrong": {cfg: Config{Policy: PolicyRestricted, Scope: scopePod}, want: PolicyRestricted, pod: true},
		"an option is unknown": {
			cfg:  Config{Policy: PolicyRestricted, Scope: scopePod, Options: map[string]string{"x": "1"}},
			want: PolicyRestricted, pod: true, text: "the option x is ignored",
		},
		"a value is none": {
			cfg:  Config{Policy: PolicyRestricted, Scope: scopePod, Options: map[string]string{optionPreferClosest: "maybe"}},
			want: PolicyRestricted, pod: true, text: "bad value",
		},
		"the machine states no distances": {
			cfg: Config{
				Policy: PolicyBestEffort, Scope: scopeContainer, Nodes: []machine.Node{{ID: 0}},
				Options: map[string]string{optionPreferClosest: "true"},
			},
			want: PolicyBestEffort, text: "error getting NUMA distances",
		},
		"the scope is unknown": {
			cfg: Config{Policy: PolicyBestEffort, Scope: "x"}, want: PolicyBestEffort,
			text: "each container is aligned by itself",
		},
		"too many nodes": {
			cfg: Config{Policy: PolicyBestEffort, Scope: scopePod, Nodes: nodes(9)}, want: PolicyNone,
			text: "nothing is aligned",
		},
		"the policy is unknown": {cfg: Config{Policy: "x"}, want: PolicyNone, text: "nothing is aligned"},
	} {
		t.Run(name, func(t *testing.T) {
			p, faults := Heal(c.cfg)
			text, severe := fault.Text(faults)
			if p.Name() != c.want || p.PerPod() != c.pod || !strings.Contains(text, c.text) || severe != (c.text != "") {
				t.Errorf("%s, per pod %t, %q, severe %t", p.Name(), p.PerPod(), text, severe)
			}
		})
	}
}
