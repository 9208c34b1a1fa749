// Package criconfig turns pods into what the container runtime understands: the configuration of a sandbox
// and of a container.
//
// # Reads
//
// Only its arguments: the node's facts, the pod, and what the worker prepared (environment, volumes, files).
//
// # Guarantees
//
// Pure: no I/O, no clock, no random value, and no map order in the output, so the same input gives the same
// bytes. Inputs are never changed; outputs share parts of them (environment, DNS settings, devices, ID mappings), so
// that neither may be changed afterwards.
// A node that was run by the kubelet can be taken over: labels, annotations, log paths, cgroup parents and
// security settings are those that the kubelet would have given.
//
// Source: Kubernetes API reference v1.36 (PodSpec, Container, SecurityContext), CRI v1 api.proto; KEP-127 (user
// namespaces), KEP-135 (seccomp default), KEP-3619 (supplementalGroupsPolicy), KEP-3857 (recursive read-only mounts),
// KEP-4639 (image volumes), KEP-24 (AppArmor), KEP-2400 (swap), KEP-2837 (pod-level resources), KEP-4960 (stop
// signals).
package criconfig
