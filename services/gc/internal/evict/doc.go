// Package evict decides which thresholds are met, which pod goes first and what is said of it. It has no clock and does no I/O.
//
// # Guarantees
//
//   - Each threshold is judged on its own: that a soft one is met, waits or is relieved changes nothing for a hard one of the
//     same signal, nor the other way round.
//   - A signal that can't be read meets no threshold, and relieves none that is met.
//
// Source: kubernetes.io, "Node-pressure Eviction"; the kubelet's reasons and messages, word for word.
package evict
