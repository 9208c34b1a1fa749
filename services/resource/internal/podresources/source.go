package podresources

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// Source knows what the node has and who has it. Its methods are called from several goroutines at a time. What they
// return isn't changed any more, by either side. An error says why it isn't known; clients are told to try again.
type Source interface {
	// Pods are all pods of the node.
	Pods(ctx context.Context) ([]Pod, error)
	// Allocatable is what containers can have for themselves, and have: healthy devices, the CPUs that aren't reserved
	// (under the policy static, else none), and the memory of each NUMA node (under the policy Static, else none).
	Allocatable(ctx context.Context) (Resources, error)
}

// Pod is a pod and what its containers have.
type Pod struct {
	// Update is the pod as in pod.update.
	Update topic.Pod
	// Phase is Failed for a pod that was refused; empty where it isn't known, as of others.
	Phase corev1.PodPhase
	// Containers are those that have something, by name.
	Containers map[string]Resources
}

// Resources are what a container has for itself, or the node has for containers.
type Resources struct {
	Devices []Device
	// CPUs are exclusive ones.
	CPUs   []int
	Memory []Memory
	// Claims are those of dynamic resource allocation. The node has none.
	Claims []Claim
}

// Device is a device of a device plugin.
type Device struct {
	// Resource is its name, such as example.com/gpu.
	Resource string
	ID       string
	// NUMANodes are those that the plugin has named; none if it doesn't say.
	NUMANodes []int
}

// Memory is memory or huge pages of NUMA nodes.
type Memory struct {
	// Type is memory or hugepages-<size>.
	Type string
	// Size is in bytes.
	Size      uint64
	NUMANodes []int
}

// Claim is a ResourceClaim.
type Claim struct {
	Namespace string
	Name      string
	Devices   []ClaimDevice
}

// ClaimDevice is a device of a claim. Driver, pool and device together name it.
type ClaimDevice struct {
	Driver string
	Pool   string
	Device string
	// ShareID names the share of a device with several users (KEP-5075); nil where it has one.
	ShareID *string
	// CDI are its names by the Container Device Interface.
	CDI []string
}
