// Package state has the contents of the CPU manager's and the memory manager's state files. Names of types and fields,
// and the order of fields, are the kubelet's, since the files' sums depend on them (package checksum).
package state

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/resource/internal/statefile/internal/checksum"
)

// CPUManagerCheckpoint is the CPU manager's file in version 2: CPUs by pod UID and container name.
type CPUManagerCheckpoint struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      checksum.Checksum            `json:"checksum"`
}

// CPUManagerCheckpointV1 is the CPU manager's file in version 1: CPUs by the container's ID.
type CPUManagerCheckpointV1 struct {
	PolicyName    string            `json:"policyName"`
	DefaultCPUSet string            `json:"defaultCpuSet"`
	Entries       map[string]string `json:"entries,omitempty"`
	Checksum      checksum.Checksum `json:"checksum"`
}

// MemoryTable is memory of one type on a NUMA node.
type MemoryTable struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"`
	Free           uint64 `json:"free"`
}

// NUMANodeState is a NUMA node.
type NUMANodeState struct {
	NumberOfAssignments int                                  `json:"numberOfAssignments"`
	MemoryMap           map[corev1.ResourceName]*MemoryTable `json:"memoryMap"`
	Cells               []int                                `json:"cells"`
}

// NUMANodeMap are the NUMA nodes by ID.
type NUMANodeMap map[int]*NUMANodeState

// Block is memory of a container.
type Block struct {
	NUMAAffinity []int               `json:"numaAffinity"`
	Type         corev1.ResourceName `json:"type"`
	Size         uint64              `json:"size"`
}

// ContainerMemoryAssignments are blocks by pod UID and container name.
type ContainerMemoryAssignments map[string]map[string][]Block

// MemoryManagerCheckpoint is the memory manager's file in version 1.
type MemoryManagerCheckpoint struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	Checksum     checksum.Checksum          `json:"checksum"`
}
