package numa

import (
	"maps"
	"slices"

	"kubelot.dev/services/resource/internal/fault"
)

// Heal is New for any configuration: it goes on with what is right of one that New refuses. A policy that nobody knows,
// or that the machine is too large for, is none.
func Heal(cfg Config) (Policy, []fault.Fault) {
	p, err := New(cfg)
	if err == nil {
		return p, nil
	}
	var faults []fault.Fault
	ignore := func(err error, instead string) {
		faults = append(faults, fault.Fault{Why: err.Error(), Instead: instead, Severe: true})
	}
	wanted := cfg.Options
	cfg.Options = map[string]string{}
	if _, err := New(Config{Policy: cfg.Policy, Scope: cfg.Scope}); err != nil && cfg.Scope != scopePod {
		if _, alone := New(Config{Policy: cfg.Policy, Scope: scopeContainer}); alone == nil {
			ignore(err, "each container is aligned by itself")
			cfg.Scope = scopeContainer
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		cfg.Options[name] = wanted[name]
		if err := new(Policy).check(cfg); err != nil {
			ignore(err, "the option "+name+" is ignored")
			delete(cfg.Options, name)
		}
	}
	if p, err = New(cfg); err == nil {
		return p, faults
	}
	ignore(err, "nothing is aligned")
	return Policy{name: PolicyNone}, faults
}

// check reports what is wrong with the options, of which the machine may lack what they need.
func (p *Policy) check(cfg Config) error {
	if _, err := p.parse(cfg.Options); err != nil || !p.closest {
		return err
	}
	return p.learn(cfg.Nodes)
}
