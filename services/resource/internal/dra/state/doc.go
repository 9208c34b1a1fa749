// Package state reads and writes the kubelet's files about claims, so that a node goes over from a kubelet and back.
//
// # Owns
//
// dra_manager_state, which is the book of claims, and dra_health_state, which is how their devices were last, both in
// the kubelet's root directory.
//
// # Guarantees
//
//   - A file is the one before or the one after a write, also after a loss of power.
//   - A damaged file is an error that says where it is damaged. SetAside keeps it for a person to look at.
package state
