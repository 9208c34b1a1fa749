package conformance

import "strings"

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

// quickScope has something of every daemon's work, and no spec that mostly waits.
var quickScope = []string{
	`\[sig-node\] Pods should`,
	`\[sig-storage\] Projected combined`,
}

// Flags are ginkgo's flags that choose the specs.
func (s Scope) Flags() []string {
	chosen := inScope
	if s.Quick {
		chosen = quickScope
	}
	focus := "(" + strings.Join(chosen, "|") + ")"
	if s.Focus != "" {
		// Ginkgo takes several focuses as alternatives, and Go's expressions know no "and": the user's stands alone.
		focus = s.Focus
	}
	return []string{"--label-filter=Conformance", "--focus=" + focus}
}
