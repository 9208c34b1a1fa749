// Package hooks runs the lifecycle hooks of containers, postStart and preStop.
//
// # Reads
//
// The hook's definition and the pod's address.
//
// # Writes
//
// The hook's effects: a command in the container (CRI ExecSync) or an HTTP request.
//
// # Guarantees
//
// A hook ends with its context at the latest. The text of an error may contain secrets, so it never reaches an Event:
// Events say only that the hook failed (EventMessage). The text goes to the container's status and to the log.
//
// Source: Kubernetes API reference, Lifecycle and LifecycleHandler; KEP-3960 (sleep), KEP-4818 (sleep of zero seconds).
package hooks
