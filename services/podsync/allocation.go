package podsync

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/runtime/nodeinfo"
)

// allocations are what the resource daemon last said of each pod, by UID, and whether it has spoken of the node.
type allocations struct {
	allocated map[string]topic.Allocation
	heard     bool
}

// take takes what is said of a pod.
func (a *allocations) take(change bus.Change[topic.Allocation], w workers) {
	switch {
	case change.Synced:
	case change.Deleted:
		delete(a.allocated, change.Key)
		if e := w[change.Key]; e != nil {
			e.Allocation(topic.Allocation{})
		}
	default:
		a.allocated[change.Key] = change.Value
		if e := w[change.Key]; e != nil {
			e.Allocation(change.Value)
		}
	}
}

// takeNode takes what is said of the node, and has all containers moved to the CPUs that they share now. It reports
// whether pods may be judged that couldn't be before.
func (a *allocations) takeNode(r *topic.NodeResources, node *nodeinfo.Info, w workers) (news bool) {
	news, a.heard = !a.heard, true
	if shared := (nodeinfo.Shared{CPUs: r.SharedCPUs, MemoryNodes: r.SharedMemoryNodes}); shared != node.Shared() {
		node.SetShared(shared)
		for _, e := range w {
			e.Wake()
		}
	}
	return news
}
