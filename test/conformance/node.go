package conformance

import (
	_ "embed"
	"time"
)

//go:embed node/limits.txt
var nodeLimits string

//go:embed node/passes.txt
var nodePasses string

//go:embed node/differs.txt
var nodeDiffers string

// Node is Kubernetes' suite of a node alone (test/e2e_node): the specs of device plugins, the PodResources and Pods
// API, the CPU, memory and topology manager, and DRA. Nearly each spec restarts the agent, and no two run side by side.
func Node() Suite {
	return Suite{
		Target: "conformance-node", labels: "!/^Feature:OffByDefault$/", scope: nodeScope, never: nodeNever,
		brief: nodeBrief, passes: nodePasses, limits: nodeLimits, differs: nodeDiffers,
		quickLimit: 20 * time.Minute, fullLimit: 5 * time.Hour,
	}
}

var nodeScope = []string{
	`\[sig-node\] Device (Manager|Plugin)`,
	`\[sig-node\] POD Resources API`,
	`\[sig-node\] (CPU|Memory|Topology) Manager`,
	`\[sig-node\] Kubelet Pods API`,
	`\[sig-node\] \[DRA\]`,
}

// nodeNever are specs that need hardware which no virtual machine has.
var nodeNever = []string{`with SRIOV devices`}

// nodeBrief has a few specs of each kind that the kubelet is known to pass here.
var nodeBrief = []string{
	`Device Plugin Failures: .* when a single device became unhealthy and then back to 1`,
	`Kubelet Pods API .* should be able to list and watch static pods`,
	`Kubelet Pods API .* should receive INITIAL_SYNC_COMPLETE`,
	`CPU Manager .* non-guaranteed pods tests should let the container access all the online CPUs without a reserved`,
	`CPU Manager .* strict CPU reservation should let the container access all the online CPUs minus`,
	`Memory Manager .* when guaranteed pod has init and app containers`,
	`\[DRA\] .* must retry NodeUnprepareResources after Kubelet restart`,
}
