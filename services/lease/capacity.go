package lease

import (
	"maps"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

// The eviction signals for which capacity is held back from pods.
const (
	signalMemory = "memory.available"
	signalNodeFS = "nodefs.available"
)

// setResources sets capacity and allocatable. Resources of others (extended ones) stay.
func setResources(s *corev1.NodeStatus, c *config.Config, m topic.Machine) {
	own := capacity(c.Kubelet, m)
	s.Capacity = withForeign(s.Capacity, own)
	s.Allocatable = withForeign(s.Allocatable, allocatable(c.Kubelet, own))
}

// withForeign adds to own the resources that somebody else advertises on the Node.
func withForeign(current, own corev1.ResourceList) corev1.ResourceList {
	all := maps.Clone(own)
	for name, quantity := range current {
		if strings.Contains(string(name), "/") {
			all[name] = quantity
		}
	}
	return all
}

func capacity(k kubeletv1beta1.KubeletConfiguration, m topic.Machine) corev1.ResourceList {
	pods := int64(k.MaxPods)
	if k.PodsPerCore > 0 {
		pods = min(pods, int64(k.PodsPerCore)*int64(m.NumCores))
	}
	list := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(m.NumCores)*1000, resource.DecimalSI),
		corev1.ResourceMemory: bytes(m.MemoryBytes),
		corev1.ResourcePods:   *resource.NewQuantity(pods, resource.DecimalSI),
	}
	for kib, pages := range m.HugePages {
		size := bytes(kib * 1024)
		list[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size.String())] = bytes(kib * 1024 * pages)
	}
	if isolation := k.LocalStorageCapacityIsolation; isolation == nil || *isolation {
		list[corev1.ResourceEphemeralStorage] = bytes(m.RootFS.CapacityBytes)
	}
	return list
}

// allocatable is what is left for pods: capacity less kubeReserved, systemReserved and the hard eviction
// thresholds; memory also less the huge pages.
func allocatable(k kubeletv1beta1.KubeletConfiguration, capacity corev1.ResourceList) corev1.ResourceList {
	list, reserved := corev1.ResourceList{}, config.Reserved(&k)
	for name, quantity := range capacity {
		left := quantity.DeepCopy()
		left.Sub(reserved[name])
		left.Sub(evictionHold(k, name, quantity))
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

// evictionHold is what the hard eviction threshold keeps free of the resource.
func evictionHold(k kubeletv1beta1.KubeletConfiguration, name corev1.ResourceName,
	capacity resource.Quantity,
) resource.Quantity {
	signal := map[corev1.ResourceName]string{
		corev1.ResourceMemory:           signalMemory,
		corev1.ResourceEphemeralStorage: signalNodeFS,
	}[name]
	if text := k.EvictionHard[signal]; signal != "" && text != "" {
		if q, ok := threshold(text, capacity); ok {
			return q
		}
	}
	return resource.Quantity{}
}

// threshold is an eviction threshold, absolute or in percent of the capacity.
func threshold(text string, capacity resource.Quantity) (resource.Quantity, bool) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil || p < 0 || math.IsNaN(p) {
			return resource.Quantity{}, false
		}
		return *resource.NewQuantity(int64(float64(capacity.Value())*p/100), resource.BinarySI), true
	}
	q, err := resource.ParseQuantity(text)
	return q, err == nil
}

func bytes(n uint64) resource.Quantity {
	return *resource.NewQuantity(int64(min(n, math.MaxInt64)), resource.BinarySI)
}

func atLeastZero(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		return *resource.NewQuantity(0, q.Format)
	}
	return q
}
