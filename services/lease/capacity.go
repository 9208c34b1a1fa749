package lease

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

// setResources sets capacity and allocatable. Resources of others (extended ones) stay.
func setResources(s *corev1.NodeStatus, c *config.Config, m topic.Machine) {
	own := capacity(c.Kubelet, m)
	s.Capacity = withForeign(s.Capacity, own)
	s.Allocatable = withForeign(s.Allocatable, allocatable(c.Kubelet, own))
}

// setDevices sets the devices of plugins. A resource whose plugin is gone becomes 0 and isn't removed, so that the
// scheduler doesn't take it for one that nobody counts. What others advertise in the capacity (kubectl patch node
// --subresource=status) is allocatable as a whole.
func setDevices(s *corev1.NodeStatus, r topic.NodeResources) {
	set := func(name corev1.ResourceName, n topic.DeviceCount) {
		s.Capacity[name] = *resource.NewQuantity(n.Capacity, resource.DecimalSI)
		s.Allocatable[name] = *resource.NewQuantity(n.Allocatable, resource.DecimalSI)
	}
	if s.Capacity == nil || s.Allocatable == nil {
		return
	}
	maps.DeleteFunc(s.Allocatable, func(name corev1.ResourceName, _ resource.Quantity) bool { return foreign(name) })
	s.Allocatable = withForeign(s.Capacity, s.Allocatable)
	for _, name := range r.Gone {
		set(name, topic.DeviceCount{})
	}
	for name, n := range r.Devices {
		set(name, n)
	}
}

// withForeign adds to own the resources that somebody else advertises on the Node.
func withForeign(current, own corev1.ResourceList) corev1.ResourceList {
	all := maps.Clone(own)
	for name, quantity := range current {
		if foreign(name) {
			all[name] = quantity
		}
	}
	return all
}

func foreign(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

func capacity(k kubeletv1beta1.KubeletConfiguration, m topic.Machine) corev1.ResourceList {
	pods := int64(k.MaxPods)
	if k.PodsPerCore > 0 {
		pods = min(pods, int64(k.PodsPerCore)*int64(m.NumCores))
	}
	list := config.Capacity(m.NumCores, m.MemoryBytes, m.HugePages)
	list[corev1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
	if isolation := k.LocalStorageCapacityIsolation; isolation == nil || *isolation {
		list[corev1.ResourceEphemeralStorage] = config.Bytes(m.RootFS.CapacityBytes)
	}
	return list
}

// allocatable is what is left for pods: capacity less kubeReserved, systemReserved and the hard eviction
// thresholds; memory also less the huge pages.
func allocatable(k kubeletv1beta1.KubeletConfiguration, capacity corev1.ResourceList) corev1.ResourceList {
	list, held := corev1.ResourceList{}, config.HeldBack(&k, capacity)
	for name, quantity := range capacity {
		left := quantity.DeepCopy()
		left.Sub(held[name])
		list[name] = atLeastZero(left)
	}
	memory := list[corev1.ResourceMemory]
	for name, quantity := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			memory.Sub(quantity)
		}
	}
	list[corev1.ResourceMemory] = atLeastZero(memory)
	return list
}

func atLeastZero(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		return *resource.NewQuantity(0, q.Format)
	}
	return q
}
