package numa

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"kubelot.dev/services/resource/internal/machine"
)

// Names of policies (topologyManagerPolicy).
const (
	PolicyNone           = "none"
	PolicyBestEffort     = "best-effort"
	PolicyRestricted     = "restricted"
	PolicySingleNUMANode = "single-numa-node"
)

// Names of scopes (topologyManagerScope).
const (
	// scopeContainer aligns each container by itself.
	scopeContainer = "container"
	// scopePod aligns all containers of a pod to the same nodes.
	scopePod = "pod"
)

// Names of options (topologyManagerPolicyOptions).
const (
	optionPreferClosest = "prefer-closest-numa-nodes"
	optionMaxNodes      = "max-allowable-numa-nodes"
)

// defaultMaxNodes is how many NUMA nodes a machine may have: providers give a hint for each set of nodes.
const defaultMaxNodes = 8

// Config is what the kubelet's configuration and the machine say.
type Config struct {
	// Policy, Scope and Options are topologyManagerPolicy, ...Scope and ...PolicyOptions.
	Policy, Scope string
	Options       map[string]string
	// Nodes are the machine's, with CPUs or without.
	Nodes []machine.Node
}

// Policy says how hints become an affinity.
type Policy struct {
	name      string
	perPod    bool
	closest   bool
	all       Mask
	distances map[int]map[int]uint64
}

// Name is the policy's name.
func (p Policy) Name() string { return p.name }

// PerPod reports whether pods are aligned as a whole (scope pod).
func (p Policy) PerPod() bool { return p.perPod }

// Aligns reports whether a pod that is admitted has everything from one NUMA node, which metrics count.
func (p Policy) Aligns() bool { return p.name == PolicySingleNUMANode }

// New checks the configuration against the machine. Its errors say what to change. Under the policy none, which asks
// nobody for hints, scope, options and machine may be anything, as in the kubelet.
func New(cfg Config) (Policy, error) {
	policies := []string{PolicyNone, PolicyBestEffort, PolicyRestricted, PolicySingleNUMANode}
	if !slices.Contains(policies, cfg.Policy) {
		return Policy{}, fmt.Errorf("unknown policy: %q: set topologyManagerPolicy to one of %q", cfg.Policy, policies)
	}
	if cfg.Policy == PolicyNone {
		return Policy{name: PolicyNone}, nil
	}
	if scopes := []string{scopeContainer, scopePod}; !slices.Contains(scopes, cfg.Scope) {
		return Policy{}, fmt.Errorf("unknown scope: %q: set topologyManagerScope to one of %q", cfg.Scope, scopes)
	}
	p := Policy{name: cfg.Policy, perPod: cfg.Scope == scopePod}
	most, err := p.parse(cfg.Options)
	if err != nil {
		return Policy{}, err
	}
	if len(cfg.Nodes) > most {
		return Policy{}, fmt.Errorf("unsupported on machines with more than %v NUMA Nodes: this one has %d; "+
			"raise %s in topologyManagerPolicyOptions, or set topologyManagerPolicy to %s",
			most, len(cfg.Nodes), optionMaxNodes, PolicyNone)
	}
	return p, p.learn(cfg.Nodes)
}

// parse reads the options and answers how many NUMA nodes the machine may have.
func (p *Policy) parse(options map[string]string) (most int, err error) {
	most = defaultMaxNodes
	for _, name := range slices.Sorted(maps.Keys(options)) {
		value := options[name]
		switch name {
		case optionPreferClosest:
			if p.closest, err = strconv.ParseBool(value); err != nil {
				return 0, fmt.Errorf("bad value for option %q: %w: set it to true or false in topologyManagerPolicyOptions",
					name, err)
			}
		case optionMaxNodes:
			if most, err = strconv.Atoi(value); err != nil {
				return 0, fmt.Errorf("unable to convert policy option to integer %q: %w: set it to a number in "+
					"topologyManagerPolicyOptions", name, err)
			}
			if most < defaultMaxNodes {
				return 0, fmt.Errorf("the minimum value of %q should not be less than %v: raise it in "+
					"topologyManagerPolicyOptions, or remove it", name, defaultMaxNodes)
			}
		default:
			return 0, fmt.Errorf("unknown Topology Manager Policy option: %q: remove it from topologyManagerPolicyOptions; "+
				"known are %s and %s", name, optionPreferClosest, optionMaxNodes)
		}
	}
	return most, nil
}

// learn takes over what the policy needs to know of the machine.
func (p *Policy) learn(nodes []machine.Node) error {
	p.distances = map[int]map[int]uint64{}
	for _, n := range nodes {
		if n.ID < 0 || n.ID > maxNode {
			return fmt.Errorf("the machine has a NUMA node %d, and only those from 0 to %d are supported: set "+
				"topologyManagerPolicy to %s", n.ID, maxNode, PolicyNone)
		}
		if p.closest && n.Distances == nil {
			return fmt.Errorf("error getting NUMA distances: the machine doesn't state those of node %d: remove %s from "+
				"topologyManagerPolicyOptions", n.ID, optionPreferClosest)
		}
		p.all |= NewMask(n.ID)
		p.distances[n.ID] = n.Distances
	}
	return nil
}
