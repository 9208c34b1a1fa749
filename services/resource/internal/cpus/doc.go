// Package cpus says which CPUs containers have for themselves (the kubelet's CPU manager).
//
// Under the policy static, a container of a Guaranteed pod that asks for a whole number of CPUs has that many for
// itself. All others share what is left. Some CPUs are reserved for the system and the pods' infrastructure: nobody has
// them alone.
//
// # Owns
//
// The State: who has which CPUs.
//
// # Guarantees
//
//   - A CPU is one pod's, or it is shared. Within a pod only init containers, which have ended when later ones start,
//     pass theirs on.
//   - A refusal changes nothing. Asking again for what a container has gives it the same.
//   - With full-pcpus-only, what a pod gets is whole cores, also where the reserved CPUs are not.
//   - A state that was saved on another machine, or under another policy, is adopted as far as it still fits (Adopt).
//   - It does no I/O and is not safe for use by several goroutines.
package cpus
