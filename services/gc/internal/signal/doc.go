// Package signal reads the eviction signals of the node: a dozen small files and a statfs for each filesystem, some tens of
// microseconds of work, so it can be done all the time; nobody else has to measure for it.
//
// # Guarantees
//
//   - memory.available is the machine's memory less the working set of the root cgroup, as the kubelet (through cAdvisor) has it
//     on cgroup v1 and v2; allocatableMemory.available the limit of the pods' cgroup less its working set.
//   - What can't be read is missing in the reading and named in its errors; the rest is there.
package signal
