// Package machine is what a node's hardware looks like to those who give parts of it away: which CPU is in which core,
// cache, socket and NUMA node, and how much memory a NUMA node has.
//
// A Topology is plain data. Read makes it from sysfs below any root directory, so tests invent machines of every kind.
package machine
