package statefile

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/resource/internal/memory"
	"kubelot.dev/services/resource/internal/statefile/internal/checksum"
	"kubelot.dev/services/resource/internal/statefile/internal/state"
)

// Memory is the memory manager's state.
type Memory struct {
	// Policy is None or Static.
	Policy string
	memory.Snapshot
}

// ReadMemory reads the memory manager's file.
func ReadMemory(path string) (Memory, error) { return read(path, memoryOf) }

// WriteMemory replaces the memory manager's file.
func WriteMemory(path string, m Memory) error {
	data, err := memoryFile(m)
	return write(path, data, err)
}

// freshMemory is what the kubelet reads a file into.
func freshMemory() state.MemoryManagerCheckpoint {
	return state.MemoryManagerCheckpoint{
		Entries: state.ContainerMemoryAssignments{}, MachineState: state.NUMANodeMap{},
	}
}

// memoryOf reads the content of the memory manager's file.
func memoryOf(data []byte) (Memory, error) {
	file := freshMemory()
	if err := parse(data, &file); err != nil {
		return Memory{}, err
	}
	if found := file.Checksum; found != 0 {
		file.Checksum = 0
		if err := verify(found, checksum.Of(&file),
			checksum.OfNamed(&file, "MemoryManagerCheckpoint", "MemoryManagerCheckpointV1")); err != nil {
			if hasPodEntries(data) {
				err = errPodEntries
			}
			return Memory{}, err
		}
	}
	if file.PolicyName == "" {
		return Memory{}, errNoPolicy
	}
	m := Memory{Policy: file.PolicyName, Snapshot: memory.Snapshot{Entries: entries(file.Entries)}}
	var err error
	if m.Nodes, err = nodes(file.MachineState); err != nil {
		return Memory{}, err
	}
	return m, nil
}

func nodes(of state.NUMANodeMap) (map[int]memory.NodeState, error) {
	made := make(map[int]memory.NodeState, len(of))
	for id, n := range of {
		if n == nil {
			return nil, unusable("NUMA node %d is null", id)
		}
		tables := make(map[corev1.ResourceName]memory.Table, len(n.MemoryMap))
		for name, t := range n.MemoryMap {
			if t == nil {
				return nil, unusable("%.80q of NUMA node %d is null", name, id)
			}
			tables[name] = memory.Table{
				Total: t.TotalMemSize, SystemReserved: t.SystemReserved, Allocatable: t.Allocatable,
				Reserved: t.Reserved, Free: t.Free,
			}
		}
		made[id] = memory.NodeState{Assignments: n.NumberOfAssignments, Memory: tables, Cells: n.Cells}
	}
	return made, nil
}

func entries(of state.ContainerMemoryAssignments) memory.Entries {
	made := make(memory.Entries, len(of))
	for uid, containers := range of {
		made[uid] = make(map[string][]memory.Block, len(containers))
		for name, blocks := range containers {
			list := make([]memory.Block, 0, len(blocks))
			for _, b := range blocks {
				list = append(list, memory.Block{Nodes: b.NUMAAffinity, Type: b.Type, Size: b.Size})
			}
			made[uid][name] = list
		}
	}
	return made
}

// memoryFile is the content of the memory manager's file.
func memoryFile(m Memory) ([]byte, error) {
	file, final := freshMemory(), freshMemory()
	file.PolicyName = m.Policy
	for id, n := range m.Nodes {
		made := &state.NUMANodeState{
			NumberOfAssignments: n.Assignments, Cells: list(n.Cells),
			MemoryMap: make(map[corev1.ResourceName]*state.MemoryTable, len(n.Memory)),
		}
		for name, t := range n.Memory {
			made.MemoryMap[name] = &state.MemoryTable{
				TotalMemSize: t.Total, SystemReserved: t.SystemReserved, Allocatable: t.Allocatable,
				Reserved: t.Reserved, Free: t.Free,
			}
		}
		file.MachineState[id] = made
	}
	for uid, containers := range m.Entries {
		file.Entries[uid] = make(map[string][]state.Block, len(containers))
		for name, blocks := range containers {
			made := make([]state.Block, 0, len(blocks))
			for _, b := range blocks {
				made = append(made, state.Block{NUMAAffinity: list(b.Nodes), Type: b.Type, Size: b.Size})
			}
			file.Entries[uid][name] = made
		}
	}
	if err := reread(&file, &final); err != nil {
		return nil, err
	}
	final.Checksum = checksum.Of(&final)
	return json.Marshal(final)
}

// list is never nil: JSON has null for that, where the kubelet writes a list.
func list(nodes []int) []int { return append([]int{}, nodes...) }
