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

// nodeBrief has a few specs of each kind.
var nodeBrief = []string{
	`Device Plugin Failures: when GetDevicePluginOptions fails`,
	`Device Plugin .* Can schedule a pod that requires a device`,
	`Device Plugin .* Keeps device plugin assignments across kubelet restarts`,
	`POD Resources API .* with CPU manager None policy should return the expected responses`,
	`CPU Manager .* should let the container access all the online CPUs without a reserved CPUs set`,
	`CPU Manager Metrics .* should report zero pinning counters`,
	`Memory Manager .* when guaranteed pod has init and app containers`,
	`Topology Manager Metrics .* should report zero admission counters`,
	`\[DRA\] .* must register after Kubelet restart`,
	`\[DRA\] .* must prepare and unprepare resources`,
}
