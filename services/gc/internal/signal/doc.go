// Package signal reads the eviction signals of the node: a dozen small files and a statfs for each filesystem, some
// tens of microseconds of work.
//
// # Guarantees
//
//   - memory.available is the machine's memory less the working set of the root cgroup, as the kubelet (through
//     cAdvisor) has it on cgroup v1 and v2; allocatableMemory.available the limit of the pods' cgroup less its working
//     set.
//   - A signal that can't be read is missing in the reading and named in its errors; the others are there.
package signal
