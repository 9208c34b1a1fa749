// Package probe runs the liveness, readiness and startup probes of containers: exec, httpGet, tcpSocket and grpc.
//
// # Reads
//
// pod.update (the probes of a pod, and how far the pod is), pleg.event (which containers run, and the pod's address),
// node.object (the address of pods on the host network), and at start its own retained probe.result. From the
// runtime: exec only.
//
// # Writes
//
// probe.result, keyed by pod, container and kind of probe, with the ID of the container it belongs to; a tombstone once
// the container is replaced or gone. event.probe: what probes fail with, in the kubelet's words.
//
// # Owns
//
// The verdicts of probes; nothing on disk. What follows from a verdict is podsync's (liveness, startup: the container
// is replaced) and status's (readiness, startup: the ready and started flags).
//
// # Guarantees
//
//   - A verdict stays until a probe changes it or another container takes the name: no restart of a daemon, the API
//     server's absence or a probe that can't be run changes one. No verdict means that none was reached: the container
//     is not started and not ready, and alive.
//   - A startup probe that has succeeded never runs again for that container, and gates the others. A liveness or
//     startup probe that has failed for good doesn't run again before there is a new container.
//   - Only running containers are probed: main containers and sidecars, not before their postStart hooks have ended.
//     While a pod terminates, readiness probes go on and the others stop. (The kubelet then calls a container started
//     whose startup probe had not succeeded yet; kubelot leaves it as it is.)
//   - The first startup and readiness probe of a container runs as soon as its initial delay allows, and readiness at
//     once after startup. All other runs are at times that follow from the container's ID, so that neither pods that
//     start together nor a restart of this daemon make them run together.
//   - Exec probes are bounded, and give way to starting and stopping pods. A probe that waits for its turn has
//     neither failed nor begun its timeout. One that takes long doesn't hold up the others.
//   - A probe that can't be run (no such port, container gone, runtime away) decides nothing; it is tried three times
//     before an Event reports it. A runtime that doesn't answer is reported once, in the daemon's health, not once per
//     probe.
//   - A command that the runtime doesn't end fails some seconds after its timeout, and at each time that it is due. It
//     isn't run again before it has ended.
//
// Source: Kubernetes API reference, Probe; KEP-950 (startup probes), KEP-753 (sidecars), KEP-2238 (grace periods of
// probes), KEP-2727 (grpc), KEP-4781 (readiness over restarts of the agent).
//
// What is where: target.go says which probes a pod has, threshold.go and schedule.go when a verdict is reached and when
// to run next, limiter.go how many run at once, tracker.go and runs.go join them; none of them has a clock or does I/O.
// probe.go is the loop around them, workers.go has the goroutines that run probes, internal/check runs one.
package probe
