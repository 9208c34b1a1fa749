package conformance

import (
	_ "embed"
	"time"
)

//go:embed numa/limits.txt
var numaLimits string

//go:embed numa/passes.txt
var numaPasses string

// NUMA is the part of the suite Node whose specs ask for several NUMA nodes, threads of a core, more than two CPUs or
// cgroup v2. A virtual machine has them, whatever the machine is like that it runs on.
func NUMA() Suite {
	return Suite{
		Target: "conformance-node VM=1", labels: Node().labels, scope: numaScope, never: numaNever,
		brief: numaBrief, passes: numaPasses, limits: numaLimits, differs: nodeDiffers,
		quickLimit: 20 * time.Minute, fullLimit: 3 * time.Hour,
	}
}

var numaScope = []string{`\[sig-node\] (CPU|Memory|Topology) Manager`, `\[sig-node\] POD Resources API`}

// numaNever are specs that need hardware which no virtual machine has.
var numaNever = append([]string{`alignment test suite`}, nodeNever...)

// numaBrief has specs that the suite Node can't have on a machine with two CPUs.
var numaBrief = []string{
	`CPU Manager .* CFS quota management should disable for guaranteed pod with exclusive single CPU`,
}
