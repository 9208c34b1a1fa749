package devices

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Entry is what a container has of a resource, as the kubelet's checkpoint has it.
type Entry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	// DeviceIDs are the devices by their NUMA nodes; -1 is for those without a topology.
	DeviceIDs map[int64][]string
	// AllocResp is the plugin's answer (v1beta1.ContainerAllocateResponse) in protobuf's encoding.
	AllocResp []byte
}

// Checkpoint is what the kubelet's checkpoint has.
type Checkpoint struct {
	PodDeviceEntries []Entry
	// RegisteredDevices are the healthy devices of each resource.
	RegisteredDevices map[string][]string
	// Stale are UIDs of pods that have got some of their devices before the machine was booted. Nobody else gets these,
	// but their plugins have to be asked about them again: what they answered then is no longer true.
	Stale map[string]bool
}

// Adopt takes over what was known before the start. Which devices the resources have is unknown until their plugins are
// back, so there are none.
func (b *Book) Adopt(c Checkpoint) {
	recall := func(name string) {
		if name != "" && b.resources[name] == nil {
			b.resources[name] = &inventory{recalled: true, away: ago}
		}
	}
	for name := range c.RegisteredDevices {
		recall(name)
	}
	for _, e := range c.PodDeviceEntries {
		if e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" {
			continue
		}
		recall(e.ResourceName)
		a := &assignment{
			nodes: make(map[int64][]string, len(e.DeviceIDs)), response: slices.Clone(e.AllocResp), stale: c.Stale[e.PodUID],
		}
		for node, ids := range e.DeviceIDs {
			if len(ids) > 0 {
				a.nodes[node] = slices.Clone(ids)
			}
		}
		b.put(e.PodUID, e.ContainerName, e.ResourceName, a)
	}
}

// Export is what is to be known after a restart. Devices that are only kept aren't in it. The entries are in the order
// of pod, container and resource, the devices in that of their IDs.
func (b *Book) Export() Checkpoint {
	c := Checkpoint{RegisteredDevices: make(map[string][]string, len(b.resources)), Stale: map[string]bool{}}
	for name, r := range b.resources {
		c.RegisteredDevices[name] = sets.List(r.healthy())
	}
	for _, uid := range b.Pods() {
		for _, container := range slices.Sorted(maps.Keys(b.pods[uid])) {
			resources := b.pods[uid][container]
			for _, name := range slices.Sorted(maps.Keys(resources)) {
				a := resources[name]
				if a.kept {
					a = a.before
				}
				if a == nil {
					continue
				}
				c.PodDeviceEntries = append(c.PodDeviceEntries, a.entry(uid, container, name))
				if a.stale {
					c.Stale[uid] = true
				}
			}
		}
	}
	return c
}

func (a *assignment) entry(uid, container, resource string) Entry {
	e := Entry{
		PodUID: uid, ContainerName: container, ResourceName: resource,
		DeviceIDs: make(map[int64][]string, len(a.nodes)), AllocResp: slices.Clone(a.response),
	}
	for node, ids := range a.nodes {
		e.DeviceIDs[node] = slices.Sorted(slices.Values(ids))
	}
	return e
}
