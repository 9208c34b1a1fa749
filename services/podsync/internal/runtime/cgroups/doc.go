// Package cgroups keeps the cgroups that pods run in: kubepods, one for each of the QoS classes burstable and
// besteffort, and one for each pod. Containers' own cgroups, below the pods', are the runtime's.
//
// # Reads and writes
//
// The cgroup hierarchies, version 1 or 2, below the configured root; with the systemd driver by way of systemd.
//
// # Owns
//
// <root>/kubepods and everything below it.
//
// # Guarantees
//
//   - Names, limits and CPU shares are those of a kubelet 1.36 for the same configuration, so that cgroups of
//     running pods are found again after a change from a kubelet or to one.
//   - Create is a handful of mkdirs and writes: every pod's start waits for it.
//   - Nothing outside kubepods is written, killed or removed, whatever a pod's UID looks like.
package cgroups
