// Package gc reclaims what pods leave on a node, and evicts pods when the node runs short of memory, disk or process IDs.
//
// # Reads
//
// pod.update and pod.sources (what should run), pleg.event (what runs, and where its logs are), at start its own node.pressure.
// From the runtime: containers, sandboxes, images, and where its filesystems are. From the machine: the eviction signals.
// By calls: stats.summary, the usage of pods, only when somebody is to be evicted or has a limit on local storage.
//
// # Writes
//
// node.pressure: the node's conditions. gc.decision: everything that was removed, rotated or evicted, with the figures that decided
// it. event.gc: Kubernetes Events. It answers gc.plan: what it would do at this moment, which kubelot gc --dry-run shows.
// pod.evict asks podsync to end a pod.
//
// # Owns
//
// Dead containers of pods that exist; sandboxes, dead containers, logs and links that a pod has left which is gone; images;
// rotated logs; <RunDir>/gc/images.json (when images were used). podsync removes what belongs to a pod when it ends it, kills
// what runs and nobody wants, and owns the pods' directories and cgroups.
//
// # Guarantees
//
//   - It deletes nothing until all sources have delivered and podsync's and pleg's states have been known for ten seconds without a break, and
//     reads both anew from the bus before each deletion: without the bus, or with podsync's state missing, nothing is deleted.
//     Rotating logs and evicting pods don't wait for that, but for evictions for disk, a minute at most, where something else could
//     go first; pods that aren't known aren't evicted.
//   - Signals are read twice a second, and at once when the kernel sees tasks stall for memory, so a threshold that is
//     crossed has its consequence within two seconds, but where something else may go first or figures are waited for.
//     No signal waits for anything that is slow: calls are made beside the loop.
//   - For each of the node's conditions one pod is evicted at a time. The next is chosen when that one has ended, podsync has freed what
//     it used and the signals have been read again, or 30 s after its grace period. The conditions don't wait for each other.
//   - Thresholds are independent of each other: one that can't be relieved doesn't keep the next from being tried, and a pod that a soft
//     one has given time is ended at once for a hard one.
//   - On disk pressure dead containers and unused images go first, for a minute at most, and the filesystem is measured again, before
//     a pod is evicted; the space of containers that were removed is waited for, 5 s at most.
//   - A pod is chosen by figures from after this threshold was met. While they are missing of a pod that could come
//     before the others nobody is evicted, 20 s at most before each eviction (21 s where stats hangs), or 10 s where
//     there are older ones. After that, of pods of equal priority, those go first that are known to use enough to end
//     the shortage, then those whose usage isn't known, then the rest; the decision and the pod's message name the
//     figures that were missing.
//   - Critical and static pods are never evicted, images in use or pinned are never removed, a container's newest dead instance is kept.
//   - A condition holds for evictionPressureTransitionPeriod after its last threshold is relieved, over restarts too.
//
// Source: kubernetes.io, "Node-pressure Eviction" and "Garbage Collection"; KEP-4191 (split image filesystem), KEP-4210
// (imageMaximumGCAge), KEP-3329 (DisruptionTarget).
//
// What is where: internal/evict, internal/image, internal/container and internal/logs decide, without clock or I/O (but
// for the files that the last three remove and rotate); internal/signal reads the machine. gc.go is the loop, world.go
// what it knows, jobs.go when what is done; eviction.go, relief.go, sweep.go, images.go, rotate.go and limits.go do it,
// each beside the loop; plan.go answers gc.plan; report.go tells.
package gc
