package machine

import (
	"fmt"
	"strconv"
	"strings"
)

// Topology is how a machine's processors are arranged. Each socket is a NUMA node and has an equal part of the memory,
// which must be a multiple of their number. Of more than two nodes 0 and 1 are near to each other, 2 and 3, and so on.
type Topology struct {
	Sockets int // zero is no topology
	Cores   int // of a socket
	Threads int // of a core
}

// intel has the kernel look for threads where qemu emulates them: a processor of AMD would need a feature that only KVM
// has.
const intel = ",vendor=GenuineIntel"

// processors are qemu's arguments for the processors and, where there are NUMA nodes, for their memory.
func (o Options) processors() []string {
	t := o.Topology
	if t.Sockets == 0 {
		return []string{"-cpu", processor, "-smp", strconv.Itoa(o.CPUs)}
	}
	cpu := processor
	if strings.HasPrefix(o.Accelerator, "tcg") {
		cpu += intel
	}
	args := []string{
		"-cpu", cpu, "-smp", fmt.Sprintf("sockets=%d,cores=%d,threads=%d", t.Sockets, t.Cores, t.Threads),
	}
	for node := range t.Sockets {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=memory%d,size=%dM", node, o.Memory/t.Sockets),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=memory%[1]d", node),
			"-numa", fmt.Sprintf("cpu,node-id=%d,socket-id=%[1]d", node))
		if t.Sockets > 2 {
			for other := range node {
				args = append(args, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", other, node, distance(other, node)))
			}
		}
	}
	return args
}

// distance is how far a NUMA node is from another, where 10 is its distance to itself.
func distance(a, b int) int {
	if a/2 == b/2 {
		return 12
	}
	return 20
}
