// Package podsync makes the pods that are wanted on this node run, and ends those that are not.
//
// # Reads
//
// Pods from the API server, a manifest directory and a manifest URL; from the API server also the ConfigMaps and
// Secrets that environment variables and image pulls need, Services and RuntimeClasses. From the bus: pleg.event
// (what runs), volume.state, probe.result, node.object, node.machine, node.runtime, node.pressure. From the
// runtime: each pod it has just changed.
//
// # Writes
//
// pod.update, pod.object, pod.mirror, pod.sources, podsync.step and status.patch on the bus, and every changing CRI call of a
// pod's life: sandboxes, image pulls, containers.
//
// # Owns
//
// The QoS and pod cgroups, the directories of pods except their volumes, /etc/hosts and termination logs of
// containers, the log directories of pods, the records of image pulls (image_manager).
//
// # Guarantees
//
// One worker per pod UID. A pod goes from syncing to terminating to terminated and never back. Containers that
// run are adopted after a restart and never started twice: a worker plans only on a reading of the runtime
// that began after its last deed. What the runtime was asked for when podsync was killed is finished and adopted,
// as the supervisor keeps the connection (systemd's file descriptor store, or kubelot up). Nothing is removed before
// every pod source has delivered once. Starts are bounded, and the pods that came first go first, but for those whose start
// fails or takes long: they keep no other from its start. Stops are bounded likewise, in the order in which the pods' ends began;
// one that is evicted or preempted waits for nobody, and one that takes its grace period holds up no other.
// Admission is asked once: a pod that runs is not judged again. A pod of the API server's is judged by the Node that the API
// server has, a static pod also by the node's own draft of it. Pods off the host's network wait for the node's network.
package podsync
