// Package podcgroup compares the limits that kubelot gives a pod's cgroup with Kubernetes' own: CPU, memory, huge
// pages, and the memory that is protected under the feature gate MemoryQoS.
package podcgroup
