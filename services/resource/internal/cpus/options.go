package cpus

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/numa"
)

// Names of policies (cpuManagerPolicy).
const (
	PolicyNone   = "none"
	PolicyStatic = "static"
)

// Names of options of the policy static (cpuManagerPolicyOptions).
const (
	// optionFullCores gives whole cores only.
	optionFullCores = "full-pcpus-only"
	// optionStrictReservation keeps the reserved CPUs from those who share, too.
	optionStrictReservation = "strict-cpu-reservation"
	// optionAlignCaches takes CPUs of one uncore cache where it can.
	optionAlignCaches = "prefer-align-cpus-by-uncorecache"
	// optionAcrossNUMA divides evenly among NUMA nodes what one node hasn't.
	optionAcrossNUMA = "distribute-cpus-across-numa"
	// optionAlignSocket prefers a socket's CPUs, of whichever of its NUMA nodes.
	optionAlignSocket = "align-by-socket"
	// optionAcrossCores takes each CPU from another core where it can.
	optionAcrossCores = "distribute-cpus-across-cores"
)

// options are the policy's options.
type options struct {
	fullCores, strict, alignCaches, acrossNUMA, alignSocket, acrossCores bool
}

// fields are the options by name.
func (o *options) fields() map[string]*bool {
	return map[string]*bool{
		optionFullCores:         &o.fullCores,
		optionStrictReservation: &o.strict,
		optionAlignCaches:       &o.alignCaches,
		optionAcrossNUMA:        &o.acrossNUMA,
		optionAlignSocket:       &o.alignSocket,
		optionAcrossCores:       &o.acrossCores,
	}
}

// parseOptions reads the options that the gates let through.
func parseOptions(cfg Config) (options, error) {
	var o options
	fields := o.fields()
	for _, name := range slices.Sorted(maps.Keys(cfg.Options)) {
		field, ok := fields[name]
		if !ok {
			return o, fmt.Errorf("unknown CPU Manager Policy option: %q: remove it from cpuManagerPolicyOptions; known "+
				"are %q", name, slices.Sorted(maps.Keys(fields)))
		}
		if err := gated(name, cfg); err != nil {
			return o, err
		}
		var err error
		if *field, err = strconv.ParseBool(cfg.Options[name]); err != nil {
			return o, fmt.Errorf("bad value for option %q: %w: set it to true or false in cpuManagerPolicyOptions", name, err)
		}
	}
	return o, o.excluded()
}

func gated(name string, cfg Config) error {
	level, gate, on := "", "", true
	switch name {
	case optionAlignSocket, optionAcrossCores:
		level, gate, on = "Alpha", "CPUManagerPolicyAlphaOptions", cfg.AlphaOptions
	case optionAcrossNUMA:
		level, gate, on = "Beta", "CPUManagerPolicyBetaOptions", cfg.BetaOptions
	}
	if on {
		return nil
	}
	return fmt.Errorf("CPU Manager Policy %s-level Options not enabled, but option %q provided: remove it from "+
		"cpuManagerPolicyOptions, or switch on the feature gate %s", level, name, gate)
}

// excluded refuses options that contradict each other.
func (o *options) excluded() error {
	fields := o.fields()
	for _, pair := range [][2]string{
		{optionFullCores, optionAcrossCores},
		{optionAcrossNUMA, optionAcrossCores},
		{optionAlignCaches, optionAcrossCores},
		{optionAlignCaches, optionAcrossNUMA},
	} {
		if *fields[pair[0]] && *fields[pair[1]] {
			return fmt.Errorf("static policy options %s and %s can not be used at the same time: remove one of them from "+
				"cpuManagerPolicyOptions", pair[0], pair[1])
		}
	}
	return nil
}

// fits refuses options that don't suit the machine or the topology manager's policy.
func (o *options) fits(m machine.Topology, topologyPolicy string) error {
	if !o.alignSocket {
		return nil
	}
	if topologyPolicy == numa.PolicySingleNUMANode {
		return fmt.Errorf("the topology manager's policy %s is incompatible with the CPU manager's policy option %s: "+
			"remove the option from cpuManagerPolicyOptions, or set another topologyManagerPolicy",
			topologyPolicy, optionAlignSocket)
	}
	if sockets, nodes := len(m.Places(machine.Socket)), len(m.Places(machine.NUMANode)); sockets > nodes {
		return fmt.Errorf("the option %s doesn't suit a machine with more sockets (%d) than NUMA nodes (%d): remove it from "+
			"cpuManagerPolicyOptions", optionAlignSocket, sockets, nodes)
	}
	return nil
}
