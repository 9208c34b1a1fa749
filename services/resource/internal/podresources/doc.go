// Package podresources serves the kubelet's PodResources API (KEP-606, KEP-2043, KEP-3695): which devices, CPUs, memory
// and claims the containers of the node have for themselves. Its clients are agents such as the DCGM exporter of GPUs,
// Multus and the topology updater of Node Feature Discovery.
//
// source.go is what the API is made from, pick.go says which pods and containers it shows, answer.go makes the messages
// of it (all three without I/O), server.go has the calls. endpoint has the socket.
//
// # Reads
//
// Its Source, for each request.
//
// # Writes
//
// Nothing but its metrics.
//
// # Owns
//
// The socket <root>/pod-resources/kubelet.sock.
//
// # Guarantees
//
//   - Only active pods are shown, unless the feature gate KubeletPodResourcesListUseActivePods is off. Of a pod it
//     shows the sidecars and the app containers: what other init containers had belongs to these by then.
//   - Answers are in a fixed order: pods by namespace and name, containers as in the pod, devices by resource and ID.
//   - A request that can't be answered yet fails as Unavailable. It isn't answered with less than there is.
//   - All clients together have 100 requests per second, in bursts of 10. Those above fail as ResourceExhausted.
//
// It differs from the kubelet 1.36 where that is wrong: a device with an empty topology is listed, a device of a claim
// has its own CDI names only, a pod that isn't there is NotFound, and v1alpha1 shows the same pods, containers and
// devices as v1 does.
package podresources
