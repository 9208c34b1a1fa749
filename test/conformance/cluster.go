package conformance

import (
	_ "embed"
	"time"
)

//go:embed limits.txt
var clusterLimits string

//go:embed passes.txt
var clusterPasses string

// Cluster is Kubernetes' end-to-end suite (test/e2e): the specs that carry the label Conformance and that a node agent
// decides. The quick part takes about four minutes on two idle cores, and nine on the slowest machine seen.
func Cluster() Suite {
	return Suite{
		Target: "conformance", labels: "Conformance", scope: inScope, slow: slow,
		passes: clusterPasses, limits: clusterLimits,
		quickLimit: 12 * time.Minute, fullLimit: 2 * time.Hour,
	}
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
