package cpus

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"kubelot.dev/services/resource/internal/cpus/pick"
	"kubelot.dev/services/resource/internal/machine"
)

// Config is what the kubelet's configuration and the machine say.
type Config struct {
	Machine machine.Topology
	// Policy and Options are cpuManagerPolicy and cpuManagerPolicyOptions.
	Policy  string
	Options map[string]string
	// AlphaOptions and BetaOptions are the feature gates CPUManagerPolicyAlphaOptions and ...BetaOptions.
	AlphaOptions, BetaOptions bool
	// TopologyPolicy is topologyManagerPolicy.
	TopologyPolicy string
	// Reserved are reservedSystemCPUs; if there are none, ReservedMilli (kubeReserved and systemReserved together, in
	// thousandths of a CPU) says how many are picked.
	Reserved      cpuset.CPUSet
	ReservedMilli int64
}

// Entries are the CPUs that containers have for themselves, by pod and container.
type Entries map[types.UID]map[string]cpuset.CPUSet

// State is who has which CPUs. Under the policy none nobody has any, and its sets are empty.
type State struct {
	machine  machine.Topology
	static   bool
	options  options
	reserved cpuset.CPUSet
	// shared are all CPUs that nobody has alone. With strict-cpu-reservation, the reserved ones aren't among them.
	shared  cpuset.CPUSet
	entries Entries
}

// New checks the configuration against the machine. Its errors say what to change.
func New(cfg Config) (*State, error) {
	s := &State{machine: cfg.Machine, reserved: cpuset.New(), shared: cpuset.New(), entries: Entries{}}
	switch cfg.Policy {
	case PolicyNone:
		if len(cfg.Options) > 0 {
			return nil, fmt.Errorf("the policy %s has no options, and cpuManagerPolicyOptions has %v: remove them, or set "+
				"cpuManagerPolicy to %s", PolicyNone, cfg.Options, PolicyStatic)
		}
		return s, nil
	case PolicyStatic:
		s.static = true
	default:
		return nil, fmt.Errorf("unknown policy: %q: set cpuManagerPolicy to %s or %s", cfg.Policy, PolicyNone, PolicyStatic)
	}
	var err error
	if s.options, err = parseOptions(cfg); err != nil {
		return nil, err
	}
	if err := s.options.fits(cfg.Machine, cfg.TopologyPolicy); err != nil {
		return nil, err
	}
	if s.reserved, err = s.reserve(cfg); err != nil {
		return nil, err
	}
	s.share()
	return s, nil
}

// reserve finds the reserved CPUs.
func (s *State) reserve(cfg Config) (cpuset.CPUSet, error) {
	if cfg.Reserved.Size() > 0 {
		if gone := cfg.Reserved.Difference(s.machine.All()); gone.Size() > 0 {
			return cpuset.New(), fmt.Errorf("reservedSystemCPUs has the CPUs %s, which aren't there or are offline; there "+
				"are %s: change reservedSystemCPUs", gone, s.machine.All())
		}
		return cfg.Reserved, nil
	}
	if cfg.ReservedMilli <= 0 {
		return cpuset.New(), errors.New("the static policy requires systemreserved.cpu + kubereserved.cpu to be greater " +
			"than zero: set reservedSystemCPUs, or cpu in systemReserved or kubeReserved")
	}
	// A CPU can't be shared between the system and a container that has it alone.
	count := int((cfg.ReservedMilli + 999) / 1000)
	cpus, err := s.pick(s.machine.All(), count)
	if err != nil {
		return cpuset.New(), fmt.Errorf("unable to reserve the required amount of CPUs: %w: lower cpu in systemReserved and "+
			"kubeReserved", err)
	}
	return cpus, nil
}

// pick chooses CPUs by the policy's algorithm.
func (s *State) pick(available cpuset.CPUSet, count int) (cpuset.CPUSet, error) {
	r := pick.Request{
		Machine: s.machine, Available: available, Count: count,
		Spread: s.options.acrossCores, AlignCaches: s.options.alignCaches,
	}
	if !s.options.acrossNUMA {
		return pick.Packed(r)
	}
	group := 1
	if s.options.fullCores {
		group = s.perCore()
	}
	return pick.Distributed(r, group)
}

// perCore is the number of CPUs in a core.
func (s *State) perCore() int { return max(1, s.machine.CPUsPerCore()) }

// share makes everything shared that nobody has alone.
func (s *State) share() {
	s.shared = s.machine.All()
	if s.options.strict {
		s.shared = s.shared.Difference(s.reserved)
	}
	s.shared = s.shared.Difference(s.exclusive())
}

// exclusive are the CPUs of all entries.
func (s *State) exclusive() cpuset.CPUSet {
	var sets []cpuset.CPUSet
	for _, containers := range s.entries {
		sets = append(sets, slices.Collect(maps.Values(containers))...)
	}
	return cpuset.New().Union(sets...)
}

// Policy is the policy's name. Under the static one every container has a set of CPUs.
func (s *State) Policy() string {
	if s.static {
		return PolicyStatic
	}
	return PolicyNone
}

// All are the machine's CPUs.
func (s *State) All() cpuset.CPUSet { return s.machine.All() }

// Shared are the CPUs of all containers that have none for themselves, as the state file has them.
func (s *State) Shared() cpuset.CPUSet { return s.shared }

// Reserved are the CPUs that nobody can have alone.
func (s *State) Reserved() cpuset.CPUSet { return s.reserved }

// Allocatable are all CPUs that containers can have for themselves, whether they are free or not.
func (s *State) Allocatable() cpuset.CPUSet {
	if !s.static {
		return cpuset.New()
	}
	return s.machine.All().Difference(s.reserved)
}

// Available are the CPUs that containers can have for themselves and that nobody has.
func (s *State) Available() cpuset.CPUSet { return s.shared.Difference(s.reserved) }

// Exclusive are the CPUs that a container has for itself, if it has any.
func (s *State) Exclusive(pod types.UID, container string) (cpuset.CPUSet, bool) {
	cpus, ok := s.entries[pod][container]
	return cpus, ok
}

// Entries is a copy of all entries.
func (s *State) Entries() Entries {
	entries := Entries{}
	for pod, containers := range s.entries {
		entries[pod] = maps.Clone(containers)
	}
	return entries
}

// PerNode is how many CPUs of each NUMA node containers have for themselves. Under the policy none it is empty.
func (s *State) PerNode() map[int]int {
	counts := map[int]int{}
	if s.static {
		for _, node := range s.machine.Places(machine.NUMANode) {
			counts[node] = 0
		}
	}
	maps.Copy(counts, s.machine.Tally(s.exclusive(), machine.NUMANode))
	return counts
}

// FullCores reports whether containers get whole cores only (full-pcpus-only), which metrics count.
func (s *State) FullCores() bool { return s.options.fullCores }

// OneCache reports whether the CPUs are all of one uncore cache, which metrics count.
func (s *State) OneCache(cpus cpuset.CPUSet) bool {
	return len(s.machine.PlacesOf(cpus, machine.UncoreCache)) <= 1
}
