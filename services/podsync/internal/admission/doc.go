// Package admission decides whether a pod may run on this node. It is pure: no I/O, no clock.
//
// The reasons and messages are the kubelet's, word for word: they end up in the pod's status, and controllers,
// alerts and people know them. The checks and their order follow the kubelet's admission handlers of
// Kubernetes 1.36: pressure, sysctls, AppArmor, operating system, resources, node affinity, node name, host ports,
// taints, features of the node, shutdown.
//
// # Guarantees
//
//   - The same input gives the same answer, down to which of several shortages is named.
//   - A node whose allocatable resources aren't known yet rejects no pod for lack of them.
package admission
