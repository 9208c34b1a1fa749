// Package gc reclaims what pods leave on a node, evicts pods when the node runs short of memory, disk or process IDs,
// and ends them in order when the machine shuts down.
//
// # Reads
//
// pod.update and pod.sources (what should run), pleg.event (what runs, and where its logs are), and at start its own
// node.pressure. From the runtime: containers, sandboxes, images, and where its filesystems are. From the machine: the
// eviction signals. By calls: stats.summary (the usage of pods), only if a pod must be evicted or has a limit on local
// storage.
//
// # Writes
//
// node.pressure: the node's conditions. node.shutdown: the progress of a shutdown of the node (internal/shutdown).
// gc.decision: everything that was removed, rotated or evicted, with the figures that decided it. event.gc: Kubernetes
// Events. It calls pod.evict, which asks podsync to end a pod. It answers gc.plan (what it would do at this moment; see
// kubelot gc --dry-run) and shutdown.request, by which kubelot shutdown starts and cancels a shutdown.
//
// # Owns
//
// Dead containers of pods that exist; sandboxes, dead containers, logs and links of pods that are gone; images; rotated
// logs; <RunDir>/gc/images.json (when images were used). podsync removes the objects of a pod that it ends, kills
// containers that no pod wants, and owns the pods' directories and cgroups.
//
// # Guarantees
//
//   - It deletes nothing until podsync's and pleg's states have been known for ten seconds without a break, and what
//     pods have that may be gone only when all sources have delivered. It reads both from the bus again before each
//     deletion. Rotation of logs and eviction of pods don't wait for that. An eviction for disk waits up to a minute if
//     something else can be removed first.
//   - Signals are read twice a second, and at once when the kernel reports that tasks stall for memory. gc acts within
//     two seconds after a threshold is crossed, unless something else is removed first or figures are missing. Slow
//     calls are made outside the loop, so no signal waits for one.
//   - For each of the node's conditions one pod is evicted at a time. The next is chosen when that one has ended,
//     podsync has freed what it used and the signals have been read again, or 30 s after its grace period.
//   - So it is over a restart of gc: a pod that was evicted before is in pod.update, with its deadline. Then the
//     condition that held, and any shortage of disk space, waits for a pod that ends as quickly. The space of one that
//     has gone is waited for, 20 s at most, unless a soft threshold took it and it goes after the restart. Thresholds
//     are judged anew: a soft one by its whole grace period, without minimum reclaim.
//   - Conditions and thresholds don't wait for each other. If a hard threshold is crossed, a pod that ends slowly
//     because of a soft one is ended at once.
//   - On disk pressure dead containers and unused images are removed first, for a minute at most. gc waits up to 5 s
//     until their space is free, and measures the filesystem again before it evicts a pod.
//   - If podsync doesn't answer, it is asked to evict the same pod again. No other pod goes in its place.
//   - On disk pressure pods over their own limits go first. While one of them ends, and its space may end the shortage,
//     no other pod is evicted, for a minute at most.
//   - A pod is chosen by figures that were measured after the threshold was crossed. If they are missing for a pod that
//     could be the first to go, gc waits before it evicts anything: 20 s at most for each eviction (21 s if stats
//     hangs), or 10 s if there are older figures. After that, pods of equal priority go in this order: those known to
//     use enough to end the shortage, those whose usage isn't known, the rest. The decision and the pod's message name
//     the missing figures.
//   - Critical and static pods are never evicted. Images in use or pinned are never removed. Of each container the
//     newest dead instance is kept.
//   - A condition holds for evictionPressureTransitionPeriod after its last threshold is relieved, over restarts too.
//   - Thresholds of eviction, of images and of logs can change while gc runs (reload.go). The next reading is judged by
//     them, and what is remembered of those that stay is kept.
//
// Source: kubernetes.io, "Node-pressure Eviction" and "Garbage Collection"; KEP-4191 (split image filesystem),
// KEP-4210 (imageMaximumGCAge), KEP-3329 (DisruptionTarget).
//
// internal/shutdown and internal/logind are a separate part, with guarantees of their own. They share the process, but
// collecting never delays them (docs/adr/0027).
//
// What is where: internal/evict, internal/image, internal/container and internal/logs decide, without clock or I/O
// (except for the files that the last three remove and rotate); internal/signal reads the machine. gc.go is the loop,
// state.go is what it knows, jobs.go says when each job is due; eviction.go, relief.go, cleanup.go, images.go,
// rotate.go and limits.go do it, each outside the loop; plan.go answers gc.plan; reload.go takes other settings;
// report.go reports.
package gc
