package topic

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// AllocationPhase is how far a pod's allocation is.
type AllocationPhase string

const (
	// Allocating pods wait for a plugin, or for a driver's answer.
	Allocating AllocationPhase = "allocating"
	// Allocated pods have all that they asked for.
	Allocated AllocationPhase = "allocated"
	// AllocationRefused pods can't have what they asked for, and fail.
	AllocationRefused AllocationPhase = "refused"
	// AllocationReleased pods have ended and have given everything back.
	AllocationReleased AllocationPhase = "released"
)

// Allocation is the payload of pod.allocation: the devices, CPUs and memory nodes that a pod has for itself.
type Allocation struct {
	Ref
	Phase AllocationPhase `json:"phase"`
	// Reason and Message say why a pod waits or is refused. Those of a refusal are its Failed status'.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Claims is true for a pod with claims of devices (DRA): its end is over when the phase is released.
	Claims bool `json:"claims,omitempty"`
	// Containers are those that have something, by name. It is as true for a pod that waits or is refused: its containers
	// may run, as after a restart or a change of the policy.
	Containers map[string]ContainerAllocation `json:"containers,omitempty"`
}

// ContainerAllocation is what a container has for itself, and what its runtime configuration gets for it.
type ContainerAllocation struct {
	// CPUs are its exclusive CPUs, as a list such as "2-3,8"; empty if it shares those of node.resources.
	CPUs string `json:"cpus,omitempty"`
	// MemoryNodes are the NUMA nodes that its memory comes from, as a list; empty for all.
	MemoryNodes string `json:"memoryNodes,omitempty"`
	// Devices are its devices, in the order of resource and ID.
	Devices []AllocatedDevice `json:"devices,omitempty"`

	Env         []EnvVar          `json:"env,omitempty"`
	Mounts      []AllocatedMount  `json:"mounts,omitempty"`
	DeviceNodes []DeviceNode      `json:"deviceNodes,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// CDI are fully qualified names of devices (Container Device Interface).
	CDI []string `json:"cdi,omitempty"`
	// PreStart is true where resource.prestart must be called before each start of the container.
	PreStart bool `json:"preStart,omitempty"`
}

// ClaimPrefix begins AllocatedDevice.Resource where the device is of a claim.
const ClaimPrefix = "claim:"

// AllocatedDevice is one device of a container.
type AllocatedDevice struct {
	// Resource is the name in the container's limits, or claim:<pod claim>[/<request>] for a device of a claim.
	Resource string `json:"resource"`
	ID       string `json:"id"`
	// Health is the device's, as allocatedResourcesStatus of the container's status has it.
	Health corev1.ResourceHealthStatus `json:"health,omitempty"`
	// HealthMessage says more about it.
	HealthMessage string `json:"healthMessage,omitempty"`
}

// EnvVar is an environment variable.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// AllocatedMount is a file or directory of the host that a plugin has mounted into a container.
type AllocatedMount struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	ReadOnly      bool   `json:"readOnly,omitempty"`
}

// DeviceNode is a device file of the host that a container gets.
type DeviceNode struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	// Permissions are of r, w and m (mknod).
	Permissions string `json:"permissions"`
}

// NodeResources is the payload of node.resources: what plugins and policies make of the node.
type NodeResources struct {
	// Devices are the resources of device plugins, those among them that are away for a short time. Their admission is
	// the resource daemon's.
	Devices map[corev1.ResourceName]DeviceCount `json:"devices,omitempty"`
	// Gone are resources that the Node has from a plugin that isn't there any more: they become 0.
	Gone []corev1.ResourceName `json:"gone,omitempty"`
	// SharedCPUs are the CPUs of all containers without CPUs of their own, as a list; empty where all have all.
	SharedCPUs string `json:"sharedCPUs,omitempty"`
	// SharedMemoryNodes are the NUMA nodes of all containers without memory of their own, as a list. It is set where
	// containers may still be kept to some of them, as after a change of the policy; empty where nobody decides on that.
	SharedMemoryNodes string `json:"sharedMemoryNodes,omitempty"`
	// RegistrationError is why device plugins can't register; empty where they can.
	RegistrationError string `json:"registrationError,omitempty"`
}

// DeviceCount is how many devices of a resource there are.
type DeviceCount struct {
	Capacity    int64 `json:"capacity"`
	Allocatable int64 `json:"allocatable"`
}

// PreStartRequest is the request of resource.prestart.
type PreStartRequest struct {
	Ref
	Container string `json:"container"`
}

// PreStartReply answers resource.prestart: the container's devices are ready for its start.
type PreStartReply struct{}

func checkAllocation(key string, a Allocation) error {
	errs := []error{a.check(key), text("reason", a.Reason), text("message", a.Message)}
	switch a.Phase {
	case Allocating, Allocated, AllocationRefused, AllocationReleased:
	default:
		errs = append(errs, fmt.Errorf("its phase %.80q is unknown", a.Phase))
	}
	return errors.Join(errs...)
}

func checkNodeResources(_ string, r NodeResources) error {
	var errs []error
	for resource, n := range r.Devices {
		if n.Allocatable < 0 || n.Capacity < n.Allocatable {
			errs = append(errs, fmt.Errorf("it has %d of %d devices of %.80q allocatable", n.Allocatable, n.Capacity, resource))
		}
	}
	return errors.Join(errs...)
}
