package cpus

import (
	"strings"
	"testing"

	"kubelot.dev/services/resource/internal/fault"
)

// What the kubelet doesn't start with is healed: the rest of the configuration counts, and what was done is said.
func TestHeal(t *testing.T) {
	for name, c := range map[string]struct {
		cfg      Config
		reserved string
		none     bool // the policy is none in the end
		severe   bool
		text     string
	}{
		"nothing is wrong": {cfg: Config{Policy: PolicyStatic, ReservedMilli: 1000}, reserved: "0"},
		"some reserved CPUs are offline": {
			cfg:      Config{Policy: PolicyStatic, Reserved: set(t, "1,8-9")},
			reserved: "1", text: "has the CPUs 8-9, which aren't there or are offline",
		},
		"all reserved CPUs are offline": {
			cfg:      Config{Policy: PolicyStatic, Reserved: set(t, "8-9")},
			reserved: "0,4", text: "as many others are reserved",
		},
		"nothing is reserved": {
			cfg: Config{Policy: PolicyStatic}, reserved: "0", severe: true, text: "one CPU is reserved",
		},
		"more is reserved than there is": {
			cfg:      Config{Policy: PolicyStatic, ReservedMilli: 9000},
			reserved: "0-7", severe: true, text: "all CPUs are reserved",
		},
		"an option is unknown": {
			cfg: Config{
				Policy: PolicyStatic, Options: map[string]string{optionFullCores: "true", "x": "true"}, ReservedMilli: 2000,
			},
			reserved: "0,4", severe: true, text: `unknown CPU Manager Policy option: "x"`,
		},
		"options contradict each other": {
			cfg: Config{
				Policy: PolicyStatic, Options: map[string]string{optionFullCores: "true", optionAcrossCores: "true"},
				AlphaOptions: true, Reserved: set(t, "0-1"),
			},
			reserved: "0-1", severe: true, text: "the option " + optionFullCores + " is ignored",
		},
		"options without a policy": {
			cfg:  Config{Policy: PolicyNone, Options: map[string]string{optionFullCores: "true"}},
			none: true, text: "the options are ignored",
		},
		"the policy is unknown": {
			cfg: Config{Policy: "statik"}, none: true, severe: true, text: "no container gets CPUs of its own",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Machine = grid(1, 1, 4, 2)
			s, faults := Heal(c.cfg)
			text, severe := fault.Text(faults)
			if !strings.Contains(text, c.text) || (text == "") != (c.text == "") || severe != c.severe {
				t.Errorf("it says %q, severe %t", text, severe)
			}
			if (s.Policy() == PolicyStatic) == c.none || s.Reserved().String() != c.reserved {
				t.Errorf("policy %s, reserved %s, want %s", s.Policy(), s.Reserved(), c.reserved)
			}
		})
	}
}
