package conformance

import (
	"fmt"
	"slices"
	"time"
)

// Suite is one of Kubernetes' suites, as far as it is run here: Cluster, Storage, Node or NUMA.
type Suite struct {
	// Target is make's target for it.
	Target string

	labels string   // ginkgo's label filter
	scope  []string // expressions for the names of the specs that are run
	never  []string // of these, the ones that are left out
	slow   []string // left out of the quick part
	brief  []string // what the quick part has; empty is all but the slow ones
	lacks  []string // left out because this node or its container runtime can't have them

	passes, limits, differs string // content of the files
	quickLimit, fullLimit   time.Duration
}

// Without is the suite without specs that can't pass on this node or with its container runtime, given by expressions
// for their names. Those of an earlier call stay left out.
func (s Suite) Without(specs ...string) Suite {
	s.lacks = slices.Concat(s.lacks, specs)
	return s
}

// Passes are the specs that must pass, in order: those in the suite's passes.txt. There are none as long as that is
// empty, before it has been written from a first run under the kubelet.
func (s Suite) Passes() ([]string, error) {
	if s.passes == "" {
		return nil, nil
	}
	specs, err := parsePasses(s.passes)
	if err != nil {
		return nil, fmt.Errorf("passes.txt of make %s: %w", s.Target, err)
	}
	return specs, nil
}

// Limits are those in the suite's limits.txt.
func (s Suite) Limits() ([]Limit, error) { return s.reasons("limits.txt", s.limits) }

// Differs are the specs that ask for what kubelot does otherwise on purpose: those in the suite's differs.txt.
func (s Suite) Differs() ([]Limit, error) { return s.reasons("differs.txt", s.differs) }

func (s Suite) reasons(file, content string) ([]Limit, error) {
	limits, err := parseLimits(content)
	if err != nil {
		return nil, fmt.Errorf("%s of make %s: %w", file, s.Target, err)
	}
	return limits, nil
}
