package evict

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is an eviction signal's name, as in evictionHard.
type Signal string

// The eviction signals.
const (
	MemoryAvailable      Signal = "memory.available"
	AllocatableAvailable Signal = "allocatableMemory.available"
	NodeFSAvailable      Signal = "nodefs.available"
	NodeFSInodes         Signal = "nodefs.inodesFree"
	ImageFSAvailable     Signal = "imagefs.available"
	ImageFSInodes        Signal = "imagefs.inodesFree"
	ContainerFSAvailable Signal = "containerfs.available"
	ContainerFSInodes    Signal = "containerfs.inodesFree"
	PIDAvailable         Signal = "pid.available"
)

// The limits on local storage count as signals in the metric of evictions.
const (
	emptyDirLimit  Signal = "emptydirfs.limit"
	podLimit       Signal = "ephemeralpodfs.limit"
	containerLimit Signal = "ephemeralcontainerfs.limit"
)

// The resources that are neither memory nor ephemeral storage.
const (
	inodes corev1.ResourceName = "inodes"
	pids   corev1.ResourceName = "pids"
)

// Resource is what is short when the signal's threshold is met.
func (s Signal) Resource() corev1.ResourceName {
	switch s {
	case MemoryAvailable, AllocatableAvailable:
		return corev1.ResourceMemory
	case NodeFSInodes, ImageFSInodes, ContainerFSInodes:
		return inodes
	case PIDAvailable:
		return pids
	default:
		return corev1.ResourceEphemeralStorage
	}
}

// Condition is the node's condition that the signal's threshold brings about.
func (s Signal) Condition() corev1.NodeConditionType {
	switch s.Resource() {
	case corev1.ResourceMemory:
		return corev1.NodeMemoryPressure
	case pids:
		return corev1.NodePIDPressure
	default:
		return corev1.NodeDiskPressure
	}
}

// Disk reports whether the signal is about a filesystem.
func (s Signal) Disk() bool { return s.Condition() == corev1.NodeDiskPressure }

// images reports whether the signal is about the filesystem of images, node whether it is about that of the root
// directory.
func (s Signal) images() bool { return s == ImageFSAvailable || s == ImageFSInodes }

func (s Signal) node() bool { return s == NodeFSAvailable || s == NodeFSInodes }

// quantity formats a figure of the signal as the kubelet does.
func (s Signal) quantity(n int64) *resource.Quantity {
	if r := s.Resource(); r == inodes || r == pids {
		return resource.NewQuantity(n, resource.DecimalSI)
	}
	return resource.NewQuantity(n, resource.BinarySI)
}

// Observation is a signal's reading: bytes, inodes or processes.
type Observation struct {
	Available, Capacity int64
	At                  time.Time
}

// Observations are the readings by signal; what couldn't be read is missing.
type Observations map[Signal]Observation

// Layout says what shares a filesystem.
type Layout struct {
	// ImageFS is true where images are on another filesystem than the root directory.
	ImageFS bool
	// ContainerFS is true where writable layers aren't on the filesystem of the images (KEP-4191).
	ContainerFS bool
}
