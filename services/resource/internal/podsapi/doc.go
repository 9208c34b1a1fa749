// Package podsapi serves the kubelet's Pods API (KEP-4188, feature gate PodsAPI): the pods of the node with their
// newest status, without the API server.
//
// source.go is what the API reads, book.go merges it and says what has changed, watch.go tells those who watch (these
// two without I/O), server.go is the goroutine that owns both, and calls.go has the calls. The socket is made by
// podresources/endpoint.
//
// # Reads
//
// pod.update and pod.status.
//
// # Writes
//
// Nothing but its metric.
//
// # Owns
//
// The socket <root>/pods-api/pods-api.sock.
//
// # Guarantees
//
//   - Nothing is shown before both topics have been read once; until then calls fail as Unavailable. While the bus is
//     away the pods are shown as they were last known.
//   - A pod is there as long as pod.update has it. Its status is that of pod.status. Before it has one it is Pending,
//     without conditions, as at the node's /pods.
//   - A watcher is told ADDED of each pod, then INITIAL_SYNC_COMPLETE, and then each change in order, without a gap or
//     a repetition: what is shown to it is what ListPods shows. An event that changes nothing isn't sent.
//   - A watcher that doesn't keep up is disconnected as ResourceExhausted, which is counted, and has to watch again. It
//     holds up nobody.
//
// It differs from the kubelet 1.36: that sends DELETED of a pod that has run to its end and isn't deleted, but goes on
// to list it.
package podsapi
