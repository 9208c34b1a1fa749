// Package evict decides which thresholds are met, which pod goes first and what is said of it. It has no clock and does no I/O.
//
// # Guarantees
//
//   - Each threshold is judged on its own: that a soft one is met, waits or is relieved changes nothing for a hard one of the
//     same signal, nor the other way round.
//   - Figures count for a threshold if they were read after it was met, and pods whose usage isn't known don't count as
//     idle. They are waited for as long as Patience says, and before a pod goes that is known to use too little to end
//     the shortage, so do they.
//   - A signal that can't be read meets no threshold, and relieves none that is met.
//
// Source: kubernetes.io, "Node-pressure Eviction"; the kubelet's reasons and messages, word for word.
package evict
