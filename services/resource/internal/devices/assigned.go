package devices

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
)

// NoNode stands for no NUMA node in the checkpoint.
const NoNode = -1

// assignment are the devices of one resource that a container has.
type assignment struct {
	// nodes are the devices by their NUMA nodes; one that is near to several is among each of them.
	nodes map[int64][]string
	// response is the plugin's answer, in its own encoding.
	response []byte
	// kept is true while the plugin is being asked.
	kept bool
	// stale is true where it is from before the machine was booted, until the plugin is asked again; before is that of
	// the container while it is being asked.
	stale  bool
	before *assignment
}

// Assigned is a device that a container has.
type Assigned struct {
	Resource, ID string
	Healthy      bool
	// Nodes are the NUMA nodes to which it was near when it was assigned, sorted.
	Nodes []int
	// Stale is true where the plugin has to be asked again before the container may use it.
	Stale bool
}

// Answer is what a plugin has answered about the devices of a container.
type Answer struct {
	Resource string
	// Response is a v1beta1.ContainerAllocateResponse in protobuf's encoding.
	Response []byte
}

// Release frees all that the pod has, or is kept for it. It reports whether there was anything.
func (b *Book) Release(podUID string) bool {
	_, had := b.pods[podUID]
	delete(b.pods, podUID)
	return had
}

// Pods are the UIDs of the pods that have devices, or for which some are kept, sorted.
func (b *Book) Pods() []string { return slices.Sorted(maps.Keys(b.pods)) }

// Assigned are the devices that the pod's containers have, by container, in the order of resource and ID. Those that
// are only kept are left out.
func (b *Book) Assigned(podUID string) map[string][]Assigned {
	all := map[string][]Assigned{}
	for container, resources := range b.pods[podUID] {
		for _, name := range slices.Sorted(maps.Keys(resources)) {
			if a := resources[name]; !a.kept {
				all[container] = append(all[container], a.list(name, b.resources[name].or(b.gone[name]))...)
			}
		}
	}
	return all
}

// Answers are what plugins have answered about the container's devices, in the order of their resources.
func (b *Book) Answers(podUID, container string) (answers []Answer) {
	resources := b.pods[podUID][container]
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		if a := resources[name]; !a.kept {
			answers = append(answers, Answer{name, a.response})
		}
	}
	return answers
}

// put has a container have this of a resource; nil stands for nothing.
func (b *Book) put(podUID, container, resource string, a *assignment) {
	containers := b.pods[podUID]
	if a == nil {
		if delete(containers[container], resource); len(containers[container]) == 0 {
			delete(containers, container)
		}
		if len(containers) == 0 {
			delete(b.pods, podUID)
		}
		return
	}
	if containers == nil {
		containers = map[string]map[string]*assignment{}
		b.pods[podUID] = containers
	}
	if containers[container] == nil {
		containers[container] = map[string]*assignment{}
	}
	containers[container][resource] = a
}

// assigned are the devices that the container has or that are kept for it.
func (b *Book) assigned(podUID, container, resource string) sets.Set[string] {
	a := b.pods[podUID][container][resource]
	if a == nil {
		return sets.New[string]()
	}
	return sets.New(a.ids()...)
}

// used are the devices of a resource that are somebody's.
func (b *Book) used(resource string) sets.Set[string] {
	used := sets.New[string]()
	for _, containers := range b.pods {
		used.Insert(idsOf(containers, resource)...)
	}
	return used
}

// idsOf are the devices of a resource that the containers have, some perhaps twice.
func idsOf(containers map[string]map[string]*assignment, resource string) (ids []string) {
	for _, resources := range containers {
		if a := resources[resource]; a != nil {
			ids = append(ids, a.ids()...)
		}
	}
	return ids
}

// ids are the devices, some perhaps twice.
func (a *assignment) ids() (ids []string) {
	for _, list := range a.nodes {
		ids = append(ids, list...)
	}
	return ids
}

// list are the devices with what is known of them.
func (a *assignment) list(name string, r *inventory) (list []Assigned) {
	nodes := map[string][]int{}
	for node, ids := range a.nodes {
		for _, id := range ids {
			if node == NoNode {
				nodes[id] = nil
				continue
			}
			nodes[id] = append(nodes[id], int(node))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		slices.Sort(nodes[id])
		list = append(list, Assigned{
			Resource: name, ID: id, Healthy: r.health(id), Nodes: slices.Compact(nodes[id]), Stale: a.stale,
		})
	}
	return list
}

// byNode sorts devices by their NUMA nodes.
func (r *inventory) byNode(ids []string) map[int64][]string {
	nodes := map[int64][]string{}
	for _, id := range ids {
		near := r.devices[id].Nodes
		for _, node := range near {
			nodes[int64(node)] = append(nodes[int64(node)], id)
		}
		if len(near) == 0 {
			nodes[NoNode] = append(nodes[NoNode], id)
		}
	}
	return nodes
}
