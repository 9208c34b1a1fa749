// Package status tells the API server what became of the pods: it writes their status, keeps the mirror
// pods of static pods, removes finished pods and records Kubernetes Events.
//
// # Reads
//
// pod.update, pod.object, status.patch, probe.result, pod.mirror, pod.sources, node.object (the Node's UID, for mirror pods)
// and event.*. At the API server: a pod whose last written status isn't known for sure.
//
// # Writes
//
// The API server: pods/status, mirror pods, the deletion of finished pods, Events. On the bus nothing but
// its health.
//
// # Owns
//
// The API server's copy of this node's pod status. Nothing on disk.
//
// # Guarantees
//
// A pod's phase never leaves Succeeded or Failed. Conditions of other owners stay. Readiness belongs to a container ID: it
// changes with a probe's result or a new container and with nothing else, restarts of any daemon included. Only the latest
// state is written, one request per pod at a time, a few pods at once; a failed write is tried again until it succeeds or the
// pod is gone. An API server that can't be reached, or fails on pods of several namespaces, makes the daemon Degraded, and the first
// success ends the waiting of all; a pod that it fails on alone, as where its namespace's webhook is down, is tried again each ten
// seconds by itself. An unchanged status isn't written again;
// one that somebody else has changed is, also in a mirror pod and on an API server that was restored to an earlier state. One that the
// API server doesn't keep is written each ten seconds at most, and what it drops each five minutes.
// A pod is removed only with its UID as precondition, after its final status was written. Events are recorded in order; those
// that can't be recorded yet wait on the bus, which bounds them by size and age. One that the API server fails on holds the others up for
// a minute at most, and one that it has no room for five.
package status
