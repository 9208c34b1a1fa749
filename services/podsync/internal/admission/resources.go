package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Held is a pod with what it holds of the node. That is counted once for a pod: each pod that comes is compared with
// all that are there.
type Held struct {
	Pod      *corev1.Pod
	requests map[corev1.ResourceName]int64
	ports    map[hostPort][]string
}

// Hold counts what the pod holds.
func Hold(pod *corev1.Pod) Held {
	return Held{Pod: pod, requests: requests(pod), ports: hostPorts(pod)}
}

// shortage is a resource that doesn't suffice: CPU in thousandths, all others in their unit.
type shortage struct {
	name                      corev1.ResourceName
	requested, used, capacity int64
}

func (s shortage) rejection() *Rejection {
	return &Rejection{
		Reason: outOf + string(s.name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			s.name, s.requested, s.used, s.capacity),
	}
}

// missing is how much must be freed.
func (s shortage) missing() int64 { return s.requested - (s.capacity - s.used) }

// rank puts the resources into the order in which they are reported.
func rank(name corev1.ResourceName) int {
	i := slices.Index([]corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	}, name)
	if i < 0 {
		return 4
	}
	return i
}

// shortages are the resources that the node lacks for the pod, in a fixed order. Devices of plugins don't count.
func shortages(pod *corev1.Pod, node *corev1.Node, others []Held, facts Facts) []shortage {
	allocatable := node.Status.Allocatable
	var short []shortage
	if q, ok := allocatable[corev1.ResourcePods]; ok && int64(len(others))+1 > q.Value() {
		short = append(short, shortage{corev1.ResourcePods, 1, int64(len(others)), q.Value()})
	}
	wanted := requests(pod)
	used := map[corev1.ResourceName]int64{}
	if len(wanted) > 0 {
		for _, other := range others {
			for name, n := range other.requests {
				used[name] += n
			}
		}
	}
	for name, n := range wanted {
		if _, device := facts.Devices[name]; device {
			continue
		}
		q, known := allocatable[name]
		// What a node doesn't know it doesn't count: resources of the cluster, and all of them before its first status.
		if !known && (!native(name) || rank(name) < 4) {
			continue
		}
		if capacity := amount(name, q); n > capacity-used[name] {
			short = append(short, shortage{name, n, used[name], capacity})
		}
	}
	slices.SortFunc(short, func(a, b shortage) int {
		return cmp.Or(cmp.Compare(rank(a.name), rank(b.name)), cmp.Compare(a.name, b.name))
	})
	return short
}

// requests are the pod's effective requests: containers, init containers and sidecars as they run together,
// pod-level ones instead where given, and the runtime's overhead (KEP-753, KEP-2837, KEP-688). Extended resources for
// which the scheduler has made a claim don't count: their devices are the claim's (KEP-5004).
func requests(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	out := map[corev1.ResourceName]int64{}
	for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if n := amount(name, q); n > 0 {
			out[name] = n
		}
	}
	if claim := pod.Status.ExtendedResourceClaimStatus; claim != nil {
		for _, m := range claim.RequestMappings {
			delete(out, corev1.ResourceName(m.ResourceName))
		}
	}
	return out
}

func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// native reports whether a resource is Kubernetes' own and not an extended one.
func native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}
