// Package resource is kubelot-resource: it gives pods devices, CPUs and memory of their own, and has their claims of
// devices prepared.
//
// How it works: resource.go is the one goroutine that owns the state. pod.go is a pod that wants something, assign.go
// how it gets it, claims.go what its claims are about. holdings.go is who has what, with the pure cores in
// internal/cpus, internal/memory, internal/devices and internal/numa; configure.go makes it from the configuration.
// internal/store and state.go keep it on disk. publish.go is what is said on the bus, source.go what the PodResources
// API shows. wiring.go connects internal/deviceplugin, internal/dra, internal/podresources and internal/podsapi.
//
// # Reads
//
// pod.update, pod.sources, plugin.registered; node.object, for devices of an earlier agent; once after the start its
// own pod.allocation and node.resources. For the Pods API, if that is on, pod.status. ResourceClaims of the API server.
// The machine's topology in sysfs. The sockets of plugins.
//
// # Writes
//
// pod.allocation, node.resources. Events about claims, and about CPUs and memory that containers lose after a change of
// the configuration or the machine. It deletes ResourceSlices of drivers that are gone.
//
// # Calls and serves
//
// It serves resource.prestart, and for the command line resource.claims and resource.forget. It serves device plugins
// at device-plugins/kubelet.sock, and the PodResources and Pods API on sockets in the root directory.
//
// # Owns
//
// device-plugins, pod-resources and pods-api; cpu_manager_state, memory_manager_state, dra_manager_state and
// dra_health_state in the root directory.
//
// # Guarantees
//
//   - A device or a CPU is one pod's at a time. What a pod has is on disk before it is said to have it.
//   - Pods are assigned in the order of their arrival, each in one step: none comes between the containers of another.
//     So are plugins asked, about one pod after the other, and different plugins at the same time.
//   - A plugin or driver that hangs holds up only the pods that want its resource, and those that come after such a pod
//     for another of its resources.
//   - No pod is refused for what may become free at once: what is kept for a pod whose plugins are being asked, or what
//     a pod has that was deleted by force. It waits.
//   - Claims are prepared for pods that have got all else, so that no driver hears of a pod that is refused.
//   - The daemon may be killed at any time. The next process takes over what is on disk. What a pod has is taken back
//     only if the pod has ended, or if every source of pods has delivered without it.
//   - A pod that wants devices of a plugin that was there before the start waits for it, for 5 minutes at most once all
//     pods are known. It never starts without them. After a reboot plugins are asked again about devices that pods had
//     before. A pod for which devices were chosen waits as long for a plugin that goes or hangs meanwhile.
//   - A pod that runs keeps what it has until it has ended, also where it would not get it again.
package resource
