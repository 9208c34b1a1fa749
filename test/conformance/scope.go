package conformance

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// Scope is which specs are run. All of them carry the label Conformance.
type Scope struct {
	Quick bool
	Focus string // regular expression; empty is everything in scope
}

// inScope are the specs that a node agent decides. Of the network's: pods that talk to pods, host ports and what the
// agent writes into resolv.conf and hosts. Left out are those that ask the service proxy or the cluster's DNS, which
// no node agent is (Services, DNS for names of services), or the API server alone (Endpoints, EndpointSlice, Ingress,
// Proxy), and the DRA API's round trips in test/e2e/dra, which need no node.
var inScope = []string{
	`\[sig-node\]`,
	`\[sig-storage\]`,
	`\[sig-network\] Networking Granular Checks: Pods`,
	`\[sig-network\] HostPort`,
	`\[sig-network\] DNS should provide /etc/hosts entries`,
	`\[sig-network\] DNS should support configurable pod DNS nameservers`,
}

// slow are specs that take a minute and more under any agent, nearly all of it waiting: the quick part is without them.
var slow = []string{
	`Probing container should \*not\* be restarted with`,
	`Probing container should have monotonically increasing restart count`,
	`Probing container should be restarted with a GRPC liveness probe`,
	`Probing container with readiness probe that fails should never be ready`,
	`Pod Generation issue 500 podspec updates`,
	`Variable Expansion should verify that a failing subpath expansion can be modified`,
	`NoExecuteTaintManager`,
}

// Alone are these specs and no others, by their full names.
func Alone(specs []string) Scope {
	var names []string
	for _, spec := range specs {
		names = append(names, regexp.QuoteMeta(spec))
	}
	return Scope{Focus: "(" + strings.Join(names, "|") + ")$"}
}

// The time limits of one run of the suite. The quick part takes about four minutes on two idle cores.
const (
	quickLimit = 8 * time.Minute
	fullLimit  = 2 * time.Hour
)

// TimeLimit is how long one run of the specs may take, those included that are run again alone.
func (s Scope) TimeLimit() time.Duration {
	if s.Quick {
		return quickLimit
	}
	return fullLimit
}

// Expected are those of the listed specs that must be run. A focus says itself what is to run.
func (s Scope) Expected(listed []string) []string {
	if s.Focus != "" {
		return nil
	}
	if !s.Quick {
		return listed
	}
	left := regexp.MustCompile(strings.Join(slow, "|"))
	return slices.DeleteFunc(slices.Clone(listed), left.MatchString)
}

// Flags are ginkgo's flags that choose the specs.
func (s Scope) Flags() []string {
	flags := []string{"--label-filter=Conformance"}
	if s.Focus != "" {
		// Ginkgo takes several focuses as alternatives, and Go's expressions know no "and": the user's stands alone.
		flags = append(flags, "--focus="+s.Focus)
	} else {
		flags = append(flags, "--focus="+strings.Join(inScope, "|"))
	}
	if s.Quick {
		flags = append(flags, "--skip="+strings.Join(slow, "|"))
	}
	return flags
}
