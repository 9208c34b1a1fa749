// Package status is kubelot-status: it merges the pods' status, publishes it on the bus and writes it to the API
// server, keeps the mirror pods of static pods, deletes finished pods and records Kubernetes Events.
//
// # Reads
//
// pod.update, pod.object, status.patch, probe.result, pod.mirror, pod.sources, node.object (the Node's UID, for mirror
// pods) and event.*; at start pod.status, which is what it published before. From the API server: a pod whose last
// written status isn't known for sure.
//
// # Writes
//
// At the API server: pods/status, mirror pods, Events, and the deletion of finished pods. On the bus: its health, and
// pod.status, also on a node without an API server. It answers status.unwritten: the pods whose last status the API
// server lacks.
//
// # Owns
//
// Readiness and conditions of this node's pods (pod.status), and the API server's copy of their status. Nothing on
// disk.
//
// # Guarantees
//
//   - pod.status changes when the merged status does, and doesn't wait for the API server (docs/adr/0019). It is
//     removed with the pod.
//   - A pod's phase never leaves Succeeded or Failed. Conditions that others own stay as they are.
//   - Readiness belongs to a container ID. Only a probe's result or a new container changes it. A restart of a daemon
//     never does.
//   - Only the latest state is written: one request per pod at a time, and a few pods at once. A failed write is
//     retried until it succeeds or the pod is gone.
//   - While the API server can't be reached, or fails on pods of several namespaces, the daemon is Degraded. After the
//     first success all other pods are tried at once. If the writes of only one pod fail, for example because its
//     namespace's webhook is down, they are retried every ten seconds.
//   - An unchanged status isn't written again, unless somebody else has changed it at the API server (in a mirror pod
//     too) or the API server was restored to an earlier state. If others undo what was written again and again, it is
//     written every ten seconds at most. If the API server drops a field, it is written every five minutes at most.
//   - A pod is deleted only after its final status was written, and with its UID as precondition.
//   - Events are recorded in order. Those that can't be recorded yet wait on the bus, which bounds them by size and
//     age. If the API server fails on an Event, the others wait for a minute at most. If it has no room for the Event,
//     they wait for five minutes at most.
package status
