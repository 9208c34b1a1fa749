package memory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Reserved is what is kept from containers: bytes of each type by NUMA node.
type Reserved map[int]map[corev1.ResourceName]uint64

func (r Reserved) anyMemory() bool {
	for _, limits := range r {
		if limits[corev1.ResourceMemory] > 0 {
			return true
		}
	}
	return false
}

// checkReserved reads reservedMemory of the configuration. All that is reserved of a type must be what Node Allocatable
// reserves of it: kubeReserved, systemReserved and the hard eviction threshold together. Else the scheduler would give
// the node pods that no NUMA node has memory for.
func checkReserved(nodes []Node, nodeAllocatable corev1.ResourceList,
	list []kubeletv1beta1.MemoryReservation,
) (Reserved, error) {
	totals, err := sum(nodes, list)
	if err != nil {
		return nil, err
	}
	if err := compare(totals, nodeAllocatable); err != nil {
		return nil, err
	}
	reserved := Reserved{}
	for _, r := range list {
		id := int(r.NumaNode)
		if reserved[id] == nil {
			reserved[id] = map[corev1.ResourceName]uint64{}
		}
		for name, q := range r.Limits {
			size, ok := sizeOf(q)
			if !ok {
				return nil, errors.New("could not covert a variable of type Quantity to int64") // the kubelet's words
			}
			reserved[id][name] += size
		}
	}
	return reserved, nil
}

func sum(nodes []Node, list []kubeletv1beta1.MemoryReservation) (corev1.ResourceList, error) {
	sums := corev1.ResourceList{}
	for _, r := range list {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.ID == int(r.NumaNode) }) {
			return nil, fmt.Errorf("the reserved memory configuration references a NUMA node %d that does not exist on "+
				"this machine", r.NumaNode)
		}
		for name, q := range r.Limits {
			q := q.DeepCopy()
			q.Add(sums[name])
			sums[name] = q
		}
	}
	return sums, nil
}

func isMemory(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func compare(totals, nodeAllocatable corev1.ResourceList) error {
	names := map[corev1.ResourceName]bool{}
	for name := range totals {
		names[name] = true
	}
	for name := range nodeAllocatable {
		if isMemory(name) {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		want, got := amount(nodeAllocatable, name), amount(totals, name)
		if want.Cmp(got) != 0 {
			return fmt.Errorf("the total amount %q of type %q is not equal to the value %q determined by Node "+
				"Allocatable feature", got.String(), name, want.String())
		}
	}
	return nil
}

// amount is a zero of the kubelet's format where the list has none.
func amount(list corev1.ResourceList, name corev1.ResourceName) resource.Quantity {
	q := *resource.NewQuantity(0, resource.DecimalSI)
	if value, ok := list[name]; ok {
		q.Add(value)
	}
	return q
}
