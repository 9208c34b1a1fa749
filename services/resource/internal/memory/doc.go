// Package memory gives containers memory of certain NUMA nodes (KEP-1769, the kubelet's memory manager). It does no
// I/O.
//
// Under the policy Static each container of a Guaranteed pod gets its memory and huge pages from as few NUMA nodes as
// hold them. Under None nobody gets anything.
//
// # Guarantees
//
//   - What containers have of a NUMA node, or of a group of nodes, is never more than is allocatable there.
//   - A node whose memory is used within a group of nodes isn't used alone or within another group at the same time.
//     Where the topology manager chooses some nodes of a group, the whole group is used. The kubelet breaks the rule
//     where that is one node, and may refuse the pod where it is more.
//   - A refused allocation changes nothing. Allocating again gives what the container has, and changes nothing: the
//     kubelet loses memory when it does so between a pod's containers.
//   - Of more than 16 nodes not all sets are tried: the smaller ones, some 65,000, and that of all nodes.
//   - A Snapshot has the numbers that a kubelet computes of the same entries, so that it takes them over.
package memory
