// Package dra gives pods the devices of their ResourceClaims (dynamic resource allocation, resource.k8s.io/v1).
//
// The decisions are in packages claims, health and stale, the connections to drivers in package plugin, and the
// kubelet's files in package state. This package is the goroutine that owns what is known (manager.go), what a pod
// goes through (pod.go, prepare.go, release.go), and what the daemon says (mailbox.go) and hears (status.go).
//
// # Reads
//
// The pods and plugins that the daemon tells of; ResourceClaims of the API server; what drivers answer and report.
//
// # Writes
//
// The status of each pod, for the daemon to publish; Events of pods; it deletes ResourceSlices of this node.
//
// # Owns
//
// dra_manager_state and dra_health_state in the kubelet's root directory, and the connections to the DRA drivers.
//
// # Guarantees
//
//   - A driver is called once for all claims of a pod that it has not prepared. That a pod uses a claim is on the disk
//     before any driver is called for it, and what the driver has answered before the pod hears of it.
//   - Each call ends after 45 s. A driver that hangs, fails or answers nonsense holds up only pods with claims of that
//     driver.
//   - A claim is unprepared when its last pod has ended, or is gone. A pod is released when no driver has anything left
//     of it, and that is on the disk.
//   - What fails is tried again after a pause that doubles up to a minute, and at once when a driver comes that was
//     missed.
//   - A restart of the daemon calls no driver about claims with devices of pods that were published as allocated
//     before, and deletes no ResourceSlices of drivers that are there.
//   - A damaged file is set aside. Claims of pods that are known then come from the API server. Their drivers are asked
//     until they answer, also where a pod's sandbox is up.
//   - No method but Run waits.
package dra
