// Package pick chooses CPUs for a container by where they are: the CPU manager's algorithms "packed" and, for the
// option distribute-cpus-across-numa, "distributed" (KEP-2902).
//
// # Guarantees
//
//   - What is picked is part of what is available, and of just the size asked for, or there is an error.
//   - It is the kubelet's choice, on machines whose cores and sockets are all alike. On others a core counts as free if
//     all its threads are free: the kubelet compares with the mean number of threads, and gives away threads in use.
package pick
