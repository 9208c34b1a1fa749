// Package traces makes OpenTelemetry spans of what the daemons say of pods on the bus, and of the requests that this
// daemon serves, and sends them to a collector (tracing in the configuration).
//
// A pod has one trace, whose ID is the pod's UID. Its root is the span "pod", from when the node first saw the pod
// until it was Ready, or had ended before. The steps of podsync, and the span "pod end", are below it; the steps of the
// end are below that one.
//
// # Guarantees
//
//   - Nothing is read, kept or sent where tracing is off.
//   - Nothing waits for the collector. While it doesn't take spans, the newest are kept and the others dropped and
//     counted.
//   - A step is told once, also after a restart of this daemon.
//
// Pods is pure: it has neither a clock nor I/O. What the design gives up is in docs/adr/0032.
package traces
