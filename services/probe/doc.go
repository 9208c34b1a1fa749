// Package probe is the place of the daemon that runs liveness, readiness and startup probes. It holds the
// daemon's contract so far: containers with a readiness probe stay not ready until a verdict is on the bus, containers without
// probes are ready as soon as they run.
//
// # Reads
//
// pod.update (the probes of a pod), pleg.event (which containers run). From the runtime: exec only.
//
// # Writes
//
// probe.result, keyed by pod, container and kind of probe, with the ID of the container it belongs to.
//
// # Owns
//
// The verdicts of probes.
//
// # Guarantees
//
// A verdict stays until a probe changes it or another container takes the name: no restart of a daemon changes one.
package probe
