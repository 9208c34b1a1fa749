// Package shutdown ends the pods of a node that shuts down: group by group, from the least important to the most, each
// within its time (KEP-2000, KEP-2712; docs/adr/0027).
//
// # Reads
//
// node.shutdown at start: what an earlier process has begun. During a shutdown: pod.update, and health.podsync, which
// shows whether podsync was started again. After it: node.object. Also the requests shutdown.request, and what logind
// announces (package logind).
//
// # Writes
//
// node.shutdown, pod.evict, Events on the node, and <root-dir>/graceful_node_shutdown_state, which the kubelet writes
// too.
//
// # Guarantees
//
//   - A group begins when all pods of the group before have ended and their volumes are unmounted, or when the time of
//     the group before is over. Groups without pods take no time.
//   - A pod that appears during the shutdown ends too, in the group that ends then or in a later one.
//   - The machine may shut down (logind's lock is released) when the API server has the statuses of all pods, or when
//     the time for that is over; see flush.go.
//   - When a process is killed, its supervisor keeps the lock. The next process continues where it was.
//   - A cancelled shutdown asks no further pod to end.
//
// next.go decides, without clock or I/O. shutdown.go is the loop.
package shutdown
