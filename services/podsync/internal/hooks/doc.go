// Package hooks runs the lifecycle hooks of containers, postStart and preStop.
//
// # Reads
//
// The hook's definition and the pod's address.
//
// # Writes
//
// What the hook itself does: a command in the container (CRI ExecSync) or an HTTP request.
//
// # Guarantees
//
// A hook ends at the latest when its context does. An error's text never reaches an Event as it may hold
// secrets: Events say only that the hook failed (EventMessage), the text belongs into the container's status and the log.
//
// Source: Kubernetes API reference, Lifecycle and LifecycleHandler; KEP-3960 (sleep), KEP-4818 (sleep of zero seconds).
package hooks
