package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
)

// Resources are kubeReserved or systemReserved as a list.
func Resources(settings map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, text := range settings {
		if q, err := resource.ParseQuantity(text); err == nil { // it has been validated
			list[corev1.ResourceName(name)] = q
		}
	}
	return list
}

// Reserved is what is kept from pods of each resource: systemReserved and kubeReserved together. Where
// reservedSystemCPUs names CPUs, their number is what is reserved of them, as with the kubelet.
func Reserved(k *kubeletv1beta1.KubeletConfiguration) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, settings := range []map[string]string{k.KubeReserved, k.SystemReserved} {
		for name, q := range Resources(settings) {
			sum := list[name]
			sum.Add(q)
			list[name] = sum
		}
	}
	if cpus, err := cpuset.Parse(k.ReservedSystemCPUs); err == nil && cpus.Size() > 0 {
		list[corev1.ResourceCPU] = *resource.NewQuantity(int64(cpus.Size()), resource.DecimalSI)
	}
	return list
}

// The eviction signals for which capacity is held back from pods.
const (
	signalMemory = "memory.available"
	signalNodeFS = "nodefs.available"
)

// HeldBack is what pods can't have of the capacity: what is reserved, and what the hard eviction thresholds keep free.
func HeldBack(k *kubeletv1beta1.KubeletConfiguration, capacity corev1.ResourceList) corev1.ResourceList {
	held := Reserved(k)
	for name, quantity := range capacity {
		signal := map[corev1.ResourceName]string{
			corev1.ResourceMemory:           signalMemory,
			corev1.ResourceEphemeralStorage: signalNodeFS,
		}[name]
		text := k.EvictionHard[signal]
		value, err := ParseEvictionValue(text)
		if err != nil || NoThreshold(text) {
			continue
		}
		hold := *resource.NewQuantity(int64(value.Share*float64(quantity.Value())), resource.BinarySI)
		if value.Quantity != nil {
			hold = *value.Quantity
		}
		sum := held[name]
		sum.Add(hold)
		held[name] = sum
	}
	return held
}

// Reservable returns an error if more is held back from pods than the machine has.
func Reservable(k *kubeletv1beta1.KubeletConfiguration, capacity corev1.ResourceList) error {
	var errs []error
	held := HeldBack(k, capacity)
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		if has, hold := capacity[name], held[name]; hold.Cmp(has) > 0 {
			errs = append(errs, fmt.Errorf("invalid Node Allocatable configuration. Resource %q has a reservation of %s but "+
				"capacity of %s. Expected capacity >= reservation: reserve less in systemReserved, kubeReserved or evictionHard",
				name, hold.String(), has.String()))
		}
	}
	return errors.Join(errs...)
}

// QOSReserved is the part of what the pods of a QoS class request of memory that is kept from the classes below, in
// percent; nil where nothing is.
func QOSReserved(k *kubeletv1beta1.KubeletConfiguration) *int64 {
	text, set := k.QOSReserved[string(corev1.ResourceMemory)]
	if percent, err := percentage(text); set && err == nil && Enabled(k, GateQOSReserved) {
		return &percent
	}
	return nil
}

// percentage reads a number of percent, such as 50%.
func percentage(text string) (int64, error) {
	number, found := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseInt(number, 10, 64)
	if err == nil && (!found || percent < 0 || percent > 100) {
		err = fmt.Errorf("%q is no percentage", text)
	}
	return percent, err
}

// Capacity is what a machine has of CPUs, of memory in bytes, and of huge pages. Their number is by page size in KiB.
func Capacity(cores int, memory uint64, hugePages map[uint64]uint64) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(cores)*1000, resource.DecimalSI),
		corev1.ResourceMemory: Bytes(memory),
	}
	for kib, pages := range hugePages {
		size := Bytes(kib * 1024)
		list[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size.String())] = Bytes(kib * 1024 * pages)
	}
	return list
}

// Bytes is a number of bytes as a quantity.
func Bytes(n uint64) resource.Quantity {
	return *resource.NewQuantity(int64(min(n, math.MaxInt64)), resource.BinarySI)
}
