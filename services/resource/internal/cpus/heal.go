package cpus

import (
	"maps"
	"slices"

	"kubelot.dev/services/resource/internal/fault"
)

// Heal is New for any configuration: it goes on with what is right of one that New refuses, so that containers keep
// their CPUs. A policy that nobody knows is none.
func Heal(cfg Config) (*State, []fault.Fault) {
	s, err := New(cfg)
	if err == nil {
		return s, nil
	}
	var faults []fault.Fault
	switch cfg.Policy {
	case PolicyStatic:
		cfg.Options, faults = healOptions(cfg)
		var reserved []fault.Fault
		cfg, reserved = healReserved(cfg)
		faults = append(faults, reserved...)
	case PolicyNone:
		faults = []fault.Fault{{Why: err.Error(), Instead: "the options are ignored"}}
		cfg.Options = nil
	}
	if s, err = New(cfg); err == nil {
		return s, faults
	}
	faults = append(faults, fault.Fault{Why: err.Error(), Instead: "no container gets CPUs of its own", Severe: true})
	s, _ = New(Config{Machine: cfg.Machine, Policy: PolicyNone})
	return s, faults
}

// healOptions are the options without those that can't be, or can't be together with ones before them in the order of
// their names.
func healOptions(cfg Config) (map[string]string, []fault.Fault) {
	var faults []fault.Fault
	trial := cfg
	trial.Options = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Options)) {
		trial.Options[name] = cfg.Options[name]
		o, err := parseOptions(trial)
		if err == nil {
			err = o.fits(cfg.Machine, cfg.TopologyPolicy)
		}
		if err != nil {
			delete(trial.Options, name)
			faults = append(faults, fault.Fault{
				Why: err.Error(), Instead: "the option " + name + " is ignored", Severe: true,
			})
		}
	}
	return trial.Options, faults
}

// healReserved makes a reservation that the machine has: what is there of the CPUs that are to be reserved, else as
// many others. Without any reservation, one CPU is the system's.
func healReserved(cfg Config) (Config, []fault.Fault) {
	s := &State{machine: cfg.Machine}
	_, err := s.reserve(cfg)
	if err == nil {
		return cfg, nil
	}
	f := fault.Fault{Why: err.Error()}
	all := cfg.Machine.All().Size()
	there := cfg.Reserved.Intersection(cfg.Machine.All())
	switch {
	case there.Size() > 0:
		cfg.Reserved, f.Instead = there, "the others of them are reserved: "+there.String()
	case cfg.Reserved.Size() > 0:
		count := min(cfg.Reserved.Size(), all)
		cfg.ReservedMilli, cfg.Reserved, f.Instead = int64(count)*1000, there, "as many others are reserved"
	case cfg.ReservedMilli <= 0:
		cfg.ReservedMilli, f.Instead, f.Severe = 1000, "one CPU is reserved", true
	default:
		cfg.ReservedMilli, f.Instead, f.Severe = int64(all)*1000, "all CPUs are reserved", true
	}
	return cfg, []fault.Fault{f}
}
