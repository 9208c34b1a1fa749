// Package numa decides which NUMA nodes a pod's or a container's resources come from (the kubelet's topology manager).
//
// Each provider of resources (CPUs, memory, devices) gives hints: sets of nodes that it can serve the request from, of
// which the smallest ones are preferred. Merge finds the set that suits all of them best, and says whether the policy
// admits the pod with it.
//
// # Guarantees
//
//   - Merge gives the kubelet's results, also where several sets are equally good. Its time grows with the number of
//     providers, not with the product of their hints.
//   - It does no I/O and keeps nothing.
package numa
