package criconfig

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"kubelot.dev/bus/topic"
)

// ReasonConfigError is the waiting reason of a container whose configuration can't be built: for every error
// of Container, and of env.Resolve.
const ReasonConfigError = "CreateContainerConfigError"

// Node is what doesn't change from pod to pod.
type Node struct {
	// RootDir is the kubelet's root directory (/var/lib/kubelet); seccomp profiles lie in RootDir/seccomp.
	RootDir string
	// PodLogsDir is where the pods' log directories are (/var/log/pods).
	PodLogsDir string
	// ContainerLogsDir is where the links to the containers' logs are (/var/log/containers).
	ContainerLogsDir string
	// ClusterDomain is KubeletConfiguration.clusterDomain.
	ClusterDomain string
	// SeccompDefault is KubeletConfiguration.seccompDefault: RuntimeDefault where a pod says nothing.
	SeccompDefault bool
	// CPUCFSQuota and CPUCFSQuotaPeriod are KubeletConfiguration.cpuCFSQuota and cpuCFSQuotaPeriod.
	CPUCFSQuota       bool
	CPUCFSQuotaPeriod time.Duration
	// QuotaWithExclusiveCPUs has the quota hold containers with CPUs of their own too, and their pods' sandboxes: the
	// feature gate DisableCPUQuotaWithExclusiveCPUs is off.
	QuotaWithExclusiveCPUs bool
	// MemoryCapacity and SwapCapacity are the machine's, in bytes.
	MemoryCapacity uint64
	SwapCapacity   uint64
	// CgroupV2 reports whether the node's hierarchy is the unified one.
	CgroupV2 bool
	// SwapController reports whether cgroups can limit swap.
	SwapController bool
	// SwapBehavior is KubeletConfiguration.memorySwap.swapBehavior: "", NoSwap or LimitedSwap.
	SwapBehavior string
	// SingleProcessOOMKill is KubeletConfiguration.singleProcessOOMKill: false lets the kernel kill the
	// whole container (cgroup v2 only).
	SingleProcessOOMKill bool
	// MemoryQoS is how the memory of containers is protected and throttled.
	MemoryQoS MemoryQoS
	// HugePageSizes are the machine's huge page sizes as cgroups name them, such as 2MB and 1GB.
	HugePageSizes []string
	// SELinux reports whether SELinux is enabled on the node.
	SELinux bool
	// MaskedPaths are masked in addition to the usual ones, such as /sys/devices/system/cpu/cpu0/thermal_throttle.
	MaskedPaths []string
}

// SandboxInput is what a sandbox's configuration follows from.
type SandboxInput struct {
	Pod     *corev1.Pod
	Attempt uint32
	// DNS is dns.ForPod's result.
	DNS *runtimeapi.DNSConfig
	// CgroupParent is the pod's cgroup in the form of the node's cgroup driver.
	CgroupParent string
	// UserNamespace is the pod's ID mapping; nil where hostUsers isn't set.
	UserNamespace *runtimeapi.UserNamespace
	// SupplementalGroups are the groups that the pod's volumes need.
	SupplementalGroups []int64
	// ExclusiveCPUs is true for a pod with CPUs of its own.
	ExclusiveCPUs bool
}

// ImageUser is whom an image runs as; at most one of the two is set.
type ImageUser struct {
	UID      *int64
	Username string
}

// ContainerInput is what a container's configuration follows from.
type ContainerInput struct {
	Pod *corev1.Pod
	// Container is the container as in the spec; of an ephemeral one the common part.
	Container    *corev1.Container
	RestartCount int
	// ImageRef is what the runtime calls the image (image.Image.Ref), ImageUser whom it runs as.
	ImageRef  string
	ImageUser ImageUser
	// Env is env.Resolve's result.
	Env []*runtimeapi.KeyValue
	// Volumes are the pod's volumes by name, all mounted.
	Volumes map[string]topic.Volume
	// ImageVolumes are the pulled images of image volumes by the volume's name.
	ImageVolumes map[string]*runtimeapi.ImageSpec
	// SubPaths are the host paths of mounts with a subPath, by the mount's index (topic.SubPathReply).
	SubPaths map[int]string
	// HostsFile is the host's file to be mounted at /etc/hosts; empty for none.
	HostsFile string
	// TerminationLog is the host's file behind terminationMessagePath; empty for none.
	TerminationLog string
	// TargetID is the container that an ephemeral container shares the PID namespace with; empty for none.
	TargetID string
	// UserNamespace is the sandbox's.
	UserNamespace *runtimeapi.UserNamespace
	// SupplementalGroups are the groups that the pod's volumes need.
	SupplementalGroups []int64
	// RecursiveReadOnly reports whether the pod's runtime handler can mount read-only recursively.
	RecursiveReadOnly bool
	// Alone is what the container has for itself (pod.allocation), and SharedCPUs are the CPUs of containers that have
	// none of their own, as a list; empty for all.
	Alone      topic.ContainerAllocation
	SharedCPUs string
}
