// Package podsync makes the pods that are wanted on this node run, and ends those that are not.
//
// # Reads
//
// Pods from the API server, a manifest directory and a manifest URL; from the API server also the ConfigMaps and
// Secrets that variables and image pulls need, service accounts for credential providers, Services and RuntimeClasses.
// From the bus: pleg.event (what runs), volume.state, probe.result, node.object, node.machine, node.runtime,
// node.pressure, node.shutdown. From the runtime: each pod it has just changed.
//
// # Writes
//
// pod.update, pod.object, pod.mirror, pod.sources, podsync.step and status.patch on the bus, and every changing CRI
// call of a pod's life: sandboxes, image pulls, containers. It answers pod.evict, and for the command line pod.retry,
// which ends back-offs, and manifest.check, which says what it would make of a manifest.
//
// # Owns
//
// The QoS and pod cgroups, the directories of pods except their volumes, /etc/hosts and termination logs of
// containers, the log directories of pods, the records of image pulls (image_manager), <RunDir>/podsync (copies of the
// manifests that could be used last). If systemCgroups is set, it moves processes that are in no cgroup there.
//
// # Guarantees
//
// One worker per pod UID. A pod goes from syncing to terminating to terminated and never back. Containers that run are
// adopted after a restart and never started twice: a worker plans only on a reading of the runtime that began after its
// last action. When podsync is killed, the runtime finishes what it was asked for, and the next podsync adopts it: the
// supervisor keeps the connection open (systemd's file descriptor store, or kubelot up). Nothing is removed before
// every pod source has delivered once, except static pods that their own source doesn't have any more. Starts are
// granted in order of arrival. A failed start goes to the end of the queue. A slow start does not block the others.
// Stops are granted in the order in which the pods' ends began. A stop that takes its grace period does not block the
// others, and a pod that is evicted or preempted waits for nobody. Admission is asked once: a pod that runs is not
// judged again. It counts when others are judged, from before its source has delivered it until its last container has
// ended. A pod that nobody wants any more, as after a deletion by force, has no place. Who gets the place of that or of
// a preempted pod, by admission or resize, waits for its end. A pod of the API server is judged by the Node object at
// the API server. A static pod doesn't wait for that: the node's own draft is enough. Pods with a network of their own
// wait for the node's network. Work that looks at all pods begins at once after a single change, and is done once for
// many changes that come together. Pods of the API server may appear in pod.sources later than in pod.update, by up to
// a millisecond for each pod of the node; static pods appear at once. The loop waits on nothing outside of the process,
// so a disk or a systemd that hangs keeps no other pod from its start.
package podsync
