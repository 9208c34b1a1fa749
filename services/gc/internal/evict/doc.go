// Package evict decides which thresholds are met, which pod goes first and what is said of it. It has no clock and does
// no I/O.
//
// # Guarantees
//
//   - Each threshold is judged on its own: the soft and the hard one of a signal don't change each other.
//   - Figures count for a threshold if they were read after it was met. Missing ones are waited for as long as Patience
//     says.
//   - A pod whose usage isn't known doesn't count as idle. It goes before a pod that is known to use too little to end
//     the shortage.
//   - Nobody is evicted for a shortage that may end with what the runtime is freeing of the pod evicted before.
//   - A signal that can't be read meets no threshold, and relieves none that is met.
//
// Source: kubernetes.io, "Node-pressure Eviction"; the kubelet's reasons and messages, word for word.
package evict
